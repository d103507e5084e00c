"""Anthropic's Messages API, on the SDK `anthropic` (extra `anthropic`).

Above: a request as its JSON, and chunks from its events, both pure; below: the client. Thinking
goes back as it came, with its signature, which is kept in the parts' meta under "anthropic";
thinking without one, or of another provider, is left out.

All of a vendor is one file, which is what makes it long: adding one is adding a file.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Iterable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from hookline import (
    AssistantMessage,
    File,
    Image,
    Message,
    Reasoning,
    Text,
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
from hookline.providers._clients import (
    CONNECT_TIMEOUT,
    IDLE_TIMEOUT,
    Clients,
    check_async,
    check_extra,
    from_environment,
    imported,
    no_key,
    server_of,
)
from hookline.providers._failures import told
from hookline.providers._frame import posted, relay
from hookline.providers._parts import (
    base64_text,
    choice,
    closed,
    count,
    index_in,
    is_object,
    json_text,
    location,
    merged,
    name_in,
    own,
    refuse,
    said,
    text_in,
    without,
)

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

__all__ = ["AnthropicModel"]

Client: TypeAlias = "AsyncAnthropic | Callable[[], AsyncAnthropic]"

PROVIDER: Final = "anthropic"
URL: Final = "https://api.anthropic.com"
MODULES: Final = ("anthropic", "anthropic.resources.messages")
KEYS: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
MAX_TOKENS: Final = 16_384  # the API wants a limit; this one every current model takes
_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}
_REASONS: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
# What the schema mode does not take; the answer is checked against the type in any case.
_NOT_TAKEN: Final = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength",
    "maxLength", "maxItems", "uniqueItems", "minProperties", "maxProperties", "pattern",
)  # fmt: skip


# ── a request as its JSON ───────────────────────────────────────────────────────────────────


def request_body(model: str, request: ModelRequest) -> dict[str, Any]:
    """What is posted to /v1/messages; raises BadRequestError for what it has no way to say."""
    settings = request.settings
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "max_tokens": settings.max_tokens or MAX_TOKENS,
        "messages": _messages(request.messages),
    }
    if request.system:
        body["system"] = request.system
    if request.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
            for tool in request.tools
        ]
    chosen = choice(settings, request)
    if chosen is not None:
        named = {"type": "tool", "name": chosen}
        body["tool_choice"] = {"type": _CHOICES[chosen]} if chosen in _CHOICES else named
    for name, value in (
        ("temperature", settings.temperature),
        ("top_p", settings.top_p),
        ("stop_sequences", list(settings.stop) or None),
    ):
        if value is not None:
            body[name] = value
    if request.output is not None:
        schema = closed(without(request.output.schema, _NOT_TAKEN))
        body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    return merged(body, settings.extra)


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Turns that alternate: results are the user's, and stand before what the user says."""
    out: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        blocks = list(_blocks(message))
        if not blocks:
            continue
        if out and out[-1]["role"] == role:
            out[-1]["content"] += blocks
        else:
            out.append({"role": role, "content": blocks})
    return out


def _blocks(message: Message) -> Iterable[dict[str, Any]]:
    if isinstance(message, UserMessage):
        yield from map(_block, said(message))
    elif isinstance(message, ToolMessage):
        content: Any = message.text
        if message.media:
            text = (Text(message.text),) if message.text.strip() else ()
            content = [_block(part) for part in (*text, *message.media)]
        block = {"type": "tool_result", "tool_use_id": message.call_id, "content": content}
        if message.outcome not in ("ok", "answered"):
            block["is_error"] = True
        yield block
    else:
        yield from _answer(message)


def _answer(message: AssistantMessage) -> Iterable[dict[str, Any]]:
    for part in message.parts:
        if isinstance(part, Text):
            yield {"type": "text", "text": part.text}
        elif isinstance(part, Reasoning):
            meta = own(part.meta, PROVIDER)
            if meta.get("data"):
                yield {"type": "redacted_thinking", "data": meta["data"]}
            elif meta.get("signature"):
                signature = meta["signature"]
                yield {"type": "thinking", "thinking": part.text, "signature": signature}
        else:
            call = {"type": "tool_use", "id": part.id, "name": part.name}
            yield {**call, "input": dict(part.arguments)}


def _block(part: Text | Image | File) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    kind = "image" if isinstance(part, Image) else "document"
    named = {"title": part.name} if isinstance(part, File) and part.name else {}
    if part.data is None:
        url = location(part, PROVIDER)
        return {"type": kind, "source": {"type": "url", "url": url}, **named}
    if isinstance(part, File) and part.media_type.startswith("text/"):
        text = part.data.decode(errors="replace")
        source = {"type": "text", "media_type": "text/plain", "data": text}
    elif isinstance(part, File) and part.media_type != "application/pdf":
        raise refuse(PROVIDER, f"a document cannot be {part.media_type}", "send PDF or text")
    else:
        data = base64_text(part.data)
        source = {"type": "base64", "media_type": part.media_type, "data": data}
    return {"type": kind, "source": source, **named}


# ── chunks from its events ──────────────────────────────────────────────────────────────────


class MessagesReader:
    """One answer of the Messages API, event by event."""

    def __init__(self) -> None:
        self.done = False
        self._reason: FinishReason | None = None
        self._usage: dict[str, Any] = {}
        self._model: str | None = None
        self._id: str | None = None
        self._kinds: dict[int, str] = {}  # of each block
        self._meta: dict[int, dict[str, Any]] = {}  # of each thinking block
        self._calls: dict[int, int] = {}  # of each tool_use block: characters so far
        self._inputs: dict[int, Any] = {}  # what it began with, where that was not empty

    def take(self, event: Any, /) -> Iterable[Chunk]:
        if event is None or self.done:
            return ()
        take = self._takes.get(event["type"])
        return take(self, event) if take is not None else ()

    def end(self) -> Iterable[Chunk]:
        if not self.done or self._reason is None:
            raise MalformedStreamError(
                f"{PROVIDER}: the answer was cut off; try again", provider=PROVIDER
            )
        yield Finish(
            finish_reason=self._reason,
            usage=usage_of(self._usage),
            model=self._model,
            response_id=self._id,
        )

    def _start(self, event: dict[str, Any]) -> Iterable[Chunk]:
        message = event["message"]
        self._model = text_in(message, "model") or None
        self._id = text_in(message, "id") or None
        self._add_usage(message)
        return ()

    def _block_start(self, event: dict[str, Any]) -> Iterable[Chunk]:
        index, block = index_in(event), event["content_block"]
        kind = self._kinds[index] = block["type"]
        if kind == "text" and block.get("text"):
            yield TextChunk(text_in(block, "text"))
        elif kind == "thinking":
            self._meta[index] = {"signature": text_in(block, "signature")}
            if block.get("thinking"):
                yield ReasoningChunk(text_in(block, "thinking"))
        elif kind == "redacted_thinking":
            self._meta[index] = {"data": text_in(block, "data")}
        elif kind == "tool_use":
            self._calls.setdefault(index, 0)
            self._inputs[index] = block.get("input")
            id = text_in(block, "id") or None
            yield ToolCallChunk(index=index, id=id, name=name_in(block))

    def _block_delta(self, event: dict[str, Any]) -> Iterable[Chunk]:
        index, delta = index_in(event), event["delta"]
        kind = delta["type"]
        if kind == "text_delta":
            return (TextChunk(text_in(delta, "text")),)
        if kind == "input_json_delta":
            if self._kinds[index] != "tool_use":
                return ()  # of a tool that the provider runs itself
            more = text_in(delta, "partial_json")
            self._calls[index] += len(more)
            return (ToolCallChunk(index=index, arguments=more),)
        if kind == "thinking_delta":
            return (ReasoningChunk(text_in(delta, "thinking")),)
        if kind == "signature_delta":
            meta = self._meta[index]
            meta["signature"] = meta.get("signature", "") + text_in(delta, "signature")
        return ()

    def _block_stop(self, event: dict[str, Any]) -> Iterable[Chunk]:
        index = index_in(event)
        kind = self._kinds.get(index)
        if kind == "text":
            yield PartEndChunk("text")
        elif kind in ("thinking", "redacted_thinking"):
            meta = {name: each for name, each in self._meta[index].items() if each}
            yield PartEndChunk("reasoning", {PROVIDER: meta} if meta else None)
        elif kind == "tool_use" and not self._calls[index] and self._inputs.get(index):
            yield ToolCallChunk(index=index, arguments=json_text(self._inputs[index]))

    def _delta(self, event: dict[str, Any]) -> Iterable[Chunk]:
        reason = text_in(event["delta"], "stop_reason")
        if reason:
            self._reason = _REASONS.get(reason, "other")
        self._add_usage(event)
        return ()

    def _stop(self, event: dict[str, Any]) -> Iterable[Chunk]:
        self.done = True
        return ()

    def _failed(self, event: dict[str, Any]) -> Iterable[Chunk]:
        raise told(PROVIDER, event)

    def _add_usage(self, event: dict[str, Any]) -> None:
        """Counts are totals: a later one stands in place of an earlier one."""
        usage = event.get("usage")
        if is_object(usage):
            self._usage.update({name: each for name, each in usage.items() if each is not None})

    _takes: ClassVar[dict[str, Callable[[Any, dict[str, Any]], Iterable[Chunk]]]] = {
        "message_start": _start,
        "content_block_start": _block_start,
        "content_block_delta": _block_delta,
        "content_block_stop": _block_stop,
        "message_delta": _delta,
        "message_stop": _stop,
        "error": _failed,
    }


def usage_of(usage: dict[str, Any]) -> Usage | None:
    """The tokens, where there is an account of them; what was cached is no part of their input."""
    if not usage:
        return None
    read = count(usage, "cache_read_input_tokens")
    write = count(usage, "cache_creation_input_tokens")
    return Usage(
        input_tokens=count(usage, "input_tokens") + read + write,
        output_tokens=count(usage, "output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=write,
        reasoning_tokens=count(usage, "output_tokens_details", "thinking_tokens"),
    )


# ── the client ──────────────────────────────────────────────────────────────────────────────


class AnthropicModel:
    """A model of Anthropic's: `AnthropicModel("claude-…")`.

    `client` is an `AsyncAnthropic` (or one for Bedrock, Vertex, …) of the user's, or a function
    that makes one; otherwise one is made from `api_key` and `base_url`, or ANTHROPIC_API_KEY and
    ANTHROPIC_BASE_URL. `idle_timeout`: seconds in which something must come. Raises UsageError
    where the SDK is not installed.
    """

    provider = PROVIDER
    """What errors and traces call the service."""

    def __init__(
        self,
        name: str,
        *,
        client: Client | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> None:
        check_extra("anthropic", "anthropic")
        if client is not None:
            check_async(client, "an AsyncAnthropic, or a function that makes one")
        self.name = name
        """The provider's name of the model."""
        self._client = client
        self._api_key = api_key
        self._base_url = base_url
        self._idle_timeout = idle_timeout
        given, here = getattr(client, "base_url", None), from_environment("ANTHROPIC_BASE_URL")
        self.server_address, self.server_port = server_of(given, base_url, here, URL)
        self._clients: Clients[AsyncAnthropic] = Clients(
            client,
            modules=MODULES,
            make=self._make,
            key=self._key,
            close=lambda client: client.close(),
            prepare=lambda client: client.with_options(max_retries=0),
        )

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """The answer, chunk by chunk; what fails is a ModelError."""
        return relay(PROVIDER, self._events(request), MessagesReader(), self._secrets())

    async def _events(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
        body = request_body(self.name, request)
        client = await self._clients.get()
        limits = imported("anthropic").Timeout(
            self._idle_timeout, connect=min(self._idle_timeout, CONNECT_TIMEOUT)
        )
        # The SDK walks through what it is given as an argument, and merges in extra_body as it is.
        sent = client.messages.with_streaming_response.create(
            model=self.name,
            max_tokens=body["max_tokens"],
            messages=(),
            stream=True,
            extra_body=body,
            timeout=limits,
        )
        async with aclosing(posted(sent)) as events:
            async for event in events:
                yield event

    def _make(self) -> AsyncAnthropic:
        if self._api_key is None and from_environment(*KEYS) is None:
            raise no_key(PROVIDER, KEYS[0])
        made: AsyncAnthropic = imported("anthropic").AsyncAnthropic(
            api_key=self._api_key, base_url=self._base_url
        )
        return made

    def _key(self) -> Hashable:
        variables = (*KEYS, "ANTHROPIC_BASE_URL")
        return (PROVIDER, self._api_key, self._base_url, *map(from_environment, variables))

    def _secrets(self) -> list[str]:
        found = (self._api_key, getattr(self._client, "api_key", None))
        return [each for each in (*found, *map(from_environment, KEYS)) if isinstance(each, str)]

    def __repr__(self) -> str:
        return f"<AnthropicModel {self.name!r}>"
