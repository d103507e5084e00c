"""Chat Completions on the SDK `openai` (extra `openai`): OpenAI's, and everything that speaks them.

Ollama, vLLM, OpenRouter, Azure and others are reached by `base_url` or by a client of their own.
Not all keep to the letter, so this reads what they are known to send: calls without index or with
one index for all, arguments of null, reasoning under two names, a stream that ends without
[DONE]. Reasoning goes back with the calls that it led to, in the form in which it came.

All of a vendor is one file, which is what makes it long: adding one is adding a file.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from typing import Any, Final

from hookline import (
    AssistantMessage,
    File,
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from hookline.errors import MalformedStreamError
from hookline.models import (
    Chunk,
    Finish,
    FinishReason,
    ModelRequest,
    PartEndChunk,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
)
from hookline.providers._clients import IDLE_TIMEOUT
from hookline.providers._failures import told
from hookline.providers._frame import posted, relay
from hookline.providers._parts import (
    base64_text,
    choice,
    count,
    is_object,
    json_text,
    location,
    merged,
    name_in,
    own,
    refuse,
    said,
    text_in,
)
from hookline.providers.openai import Client, Connection, json_schema

__all__ = ["OpenAIChatModel"]

META: Final = "openai-chat"
_THOUGHTS: Final = ("reasoning_content", "reasoning")
_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "refusal",
}


# ── a request as its JSON ───────────────────────────────────────────────────────────────────


def request_body(
    model: str, request: ModelRequest, *, provider: str = "openai", limit: str = "max_tokens"
) -> dict[str, Any]:
    """What is posted to /chat/completions; `limit` is the name of the limit of tokens."""
    settings = request.settings
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": _messages(request, provider),
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in request.tools
        ]
    chosen = choice(settings, request)
    if chosen is not None:
        known = chosen in ("auto", "none", "required")
        named = {"type": "function", "function": {"name": chosen}}
        body["tool_choice"] = chosen if known else named
    for name, value in (
        ("temperature", settings.temperature),
        ("top_p", settings.top_p),
        (limit, settings.max_tokens),
        ("stop", list(settings.stop) or None),
        ("seed", settings.seed),
    ):
        if value is not None:
            body[name] = value
    if request.output is not None:
        form = {"type": "json_schema", "json_schema": json_schema(request.output)}
        body["response_format"] = form
    return merged(body, settings.extra)


def _messages(request: ModelRequest, provider: str) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    media: list[Image | File] = []  # of tool results, which are text alone on this wire
    if request.system:
        out.append({"role": "system", "content": request.system})
    for message in request.messages:
        if media and not isinstance(message, ToolMessage):
            out.append(_shown(media, provider))
            media = []
        if isinstance(message, ToolMessage):
            out.append({"role": "tool", "tool_call_id": message.call_id, "content": message.text})
            media += message.media
        else:
            out.append(_message(message, provider))
    if media:
        out.append(_shown(media, provider))
    return out


def _shown(media: Sequence[Image | File], provider: str) -> dict[str, Any]:
    about: dict[str, Any] = {"type": "text", "text": "What the tools above have returned:"}
    return {"role": "user", "content": [about, *(_input(part, provider) for part in media)]}


def _message(message: Message, provider: str) -> dict[str, Any]:
    if isinstance(message, UserMessage):
        parts = said(message)
        if all(isinstance(part, Text) for part in parts):
            return {"role": "user", "content": message.text}
        return {"role": "user", "content": [_input(part, provider) for part in parts]}
    assert isinstance(message, AssistantMessage)
    out: dict[str, Any] = {"role": "assistant", "content": message.text or None}
    calls = [part for part in message.parts if type(part) is ToolCall]
    if calls:
        out["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": json_text(call.arguments),
                },
            }
            for call in calls
        ]
        for part in message.parts:
            if type(part) is Reasoning:
                _think(out, part)
    elif out["content"] is None:
        out["content"] = ""  # reasoning alone, which has no place here
    return out


def _think(out: dict[str, Any], part: Reasoning) -> None:
    meta = own(part.meta, META)
    if meta.get("field") in _THOUGHTS and part.text:
        out[meta["field"]] = out.get(meta["field"], "") + part.text
    if meta.get("details"):
        out["reasoning_details"] = [*out.get("reasoning_details", ()), *meta["details"]]


def _input(part: Text | Image | File, provider: str) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": location(part, provider)}}
    if part.data is None:
        raise refuse(
            provider, f"Chat Completions takes no file by URL ({part.url!r:.80})", "pass its data="
        )
    if part.media_type.startswith("audio/"):
        kind = part.media_type.removeprefix("audio/").removeprefix("x-")
        sound = {"data": base64_text(part.data), "format": {"mpeg": "mp3"}.get(kind, kind)}
        return {"type": "input_audio", "input_audio": sound}
    file = {"filename": part.name or "file", "file_data": location(part, provider)}
    return {"type": "file", "file": file}


# ── chunks from its events ──────────────────────────────────────────────────────────────────


class ChatReader:
    """One answer of Chat Completions, event by event."""

    def __init__(self, provider: str = "openai") -> None:
        self.done = False
        self._provider = provider
        self._reason: FinishReason | None = None
        self._usage: Usage | None = None
        self._model: str | None = None
        self._id: str | None = None
        self._calls: dict[int, int] = {}  # their index → ours
        self._ids: list[str] = []  # of each call of ours
        self._field: str | None = None  # under which reasoning comes
        self._details: list[Any] = []
        self._refused = False

    def take(self, event: Any, /) -> Iterable[Chunk]:
        if self.done:
            return
        if event is None:
            self.done = True
            return
        if event.get("error"):
            raise told(self._provider, event)
        self._model = text_in(event, "model") or self._model
        self._id = text_in(event, "id") or self._id
        if event.get("usage") is not None:
            self._usage = usage_of(event["usage"])
        for each in (event.get("choices") or ())[:1]:
            delta = each.get("delta")
            if is_object(delta):
                yield from self._delta(delta)
            reason = text_in(each, "finish_reason")
            if reason:
                self._reason = _REASONS.get(reason, "other")

    def end(self) -> Iterable[Chunk]:
        if self._reason is None and not self.done:
            raise MalformedStreamError(
                f"{self._provider}: the answer was cut off; try again", provider=self._provider
            )
        yield from self._thought()
        reason = self._reason or "stop"
        if self._ids and reason == "stop":
            reason = "tool_calls"
        elif self._refused and reason == "stop":
            reason = "refusal"
        yield Finish(
            finish_reason=reason, usage=self._usage, model=self._model, response_id=self._id
        )

    def _delta(self, delta: dict[str, Any]) -> Iterable[Chunk]:
        for field in _THOUGHTS:
            thought = text_in(delta, field)
            if thought and self._field in (None, field):  # some send the same under both names
                self._field = field
                yield ReasoningChunk(thought)
        details = delta.get("reasoning_details")
        if isinstance(details, list):
            json_text(details)  # raises for what no store could keep
            self._details += details
        text, refusal = text_in(delta, "content"), text_in(delta, "refusal")
        calls: Sequence[Any] = delta.get("tool_calls") or ()
        if text or refusal or calls:
            yield from self._thought()
        if text:
            yield TextChunk(text)
        if refusal:
            self._refused = True
            yield TextChunk(refusal)
        for call in calls:
            yield self._call(call)

    def _thought(self) -> Iterable[Chunk]:
        """The reasoning is over: keep how it came, for the way back."""
        meta: dict[str, Any] = {"field": self._field} if self._field else {}
        if self._details:
            meta["details"] = self._details
            self._details = []
        if meta:
            self._field = None
            yield PartEndChunk("reasoning", {META: meta})

    def _call(self, call: dict[str, Any]) -> Chunk:
        function: dict[str, Any] = call.get("function") or {}
        id, name = text_in(call, "id"), text_in(function, "name")
        theirs = call.get("index")
        if theirs is None:
            theirs = self._place(id)
        if type(theirs) is not int:
            raise TypeError("index is no number")
        ours = self._calls.get(theirs)
        if ours is None or (id and name and self._ids[ours] and id != self._ids[ours]):
            ours = self._calls[theirs] = len(self._ids)
            self._ids.append(id)
            first = ToolCallChunk(index=ours, id=id or None, name=name_in(function))
            return first.replace(arguments=text_in(function, "arguments"))
        return ToolCallChunk(index=ours, arguments=text_in(function, "arguments"))

    def _place(self, id: str) -> int:
        """A place for a call without index: a new id is a new call, no id goes on with the last."""
        if id:
            known = [theirs for theirs, ours in self._calls.items() if self._ids[ours] == id]
            return known[0] if known else len(self._ids)
        return max(self._calls, default=0)


def usage_of(usage: object) -> Usage | None:
    """The tokens, where there is an account of them."""
    if not is_object(usage):
        return None
    return Usage(
        input_tokens=count(usage, "prompt_tokens"),
        output_tokens=count(usage, "completion_tokens"),
        cache_read_tokens=count(usage, "prompt_tokens_details", "cached_tokens"),
        cache_write_tokens=count(usage, "prompt_tokens_details", "cache_write_tokens"),
        reasoning_tokens=count(usage, "completion_tokens_details", "reasoning_tokens"),
    )


# ── the client ──────────────────────────────────────────────────────────────────────────────


class OpenAIChatModel:
    """A model behind Chat Completions: `OpenAIChatModel("qwen3", base_url="http://…/v1")`.

    `client` is an `AsyncOpenAI` (or `AsyncAzureOpenAI`) of the user's, or a function that makes
    one; otherwise one is made from `api_key` and `base_url`, or OPENAI_API_KEY and
    OPENAI_BASE_URL. `provider` names the service in errors and traces. `idle_timeout`: seconds in
    which something must come. Raises UsageError where the SDK is not installed.
    """

    def __init__(
        self,
        name: str,
        *,
        client: Client | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        provider: str = "openai",
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> None:
        self.name = name
        """The provider's name of the model."""
        self.provider = provider
        self._connection = Connection(client, api_key, base_url)
        self.server_address, self.server_port = self._connection.server()
        self._idle_timeout = idle_timeout

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """The answer, chunk by chunk; what fails is a ModelError."""
        events = self._events(request)
        secrets = self._connection.secrets()
        return relay(self.provider, events, ChatReader(self.provider), secrets)

    async def _events(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
        client = await self._connection.clients.get()
        # Of OpenAI's own models the newer ones refuse the old name, others know only that one.
        theirs = client.base_url.host.endswith(("openai.com", "azure.com"))
        limit = "max_completion_tokens" if theirs else "max_tokens"
        body = request_body(self.name, request, provider=self.provider, limit=limit)
        sent = client.chat.completions.with_streaming_response.create(
            model=self.name,
            messages=(),
            stream=True,
            extra_body=body,
            timeout=self._connection.limits(self._idle_timeout),
        )
        async with aclosing(posted(sent)) as events:
            async for event in events:
                yield event

    def __repr__(self) -> str:
        return f"<OpenAIChatModel {self.name!r}>"
