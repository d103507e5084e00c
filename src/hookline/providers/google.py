"""Google's Gemini, on the SDK `google-genai` (extra `google`).

Above: a request as the SDK takes it, and chunks from its events, both pure; below: the client.
Signatures of thoughts go back with the part on which they came: with a call in its meta, with
anything else as a reasoning part without text, under "google".

All of a vendor is one file, which is what makes it long: adding one is adding a file.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Iterable, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeAlias

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
from hookline.errors import ContentRefusedError, MalformedStreamError
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
    IDLE_TIMEOUT,
    Clients,
    check_async,
    check_extra,
    from_environment,
    imported,
    no_key,
    server_of,
)
from hookline.providers._frame import relay, spent
from hookline.providers._parts import (
    choice,
    count,
    is_object,
    json_text,
    merged,
    name_in,
    own,
    refuse,
    said,
    text_in,
)

if TYPE_CHECKING:
    from google.genai import Client as GenaiClient

__all__ = ["GoogleModel"]

Client: TypeAlias = "GenaiClient | Callable[[], GenaiClient]"

PROVIDER: Final = "google"
URL: Final = "https://generativelanguage.googleapis.com"
MODULES: Final = ("google.genai", "google.genai.types")
KEYS: Final = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_CHOICES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_REFUSALS: Final = (
    "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MODEL_ARMOR",
)  # fmt: skip
_REASONS: Final[dict[str, FinishReason]] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(_REFUSALS, "refusal"),
}


# ── a request as the SDK takes it ───────────────────────────────────────────────────────────


def request_body(model: str, request: ModelRequest) -> dict[str, Any]:
    """The arguments of `generate_content_stream`; raises BadRequestError for what it cannot say."""
    settings = request.settings
    config: dict[str, Any] = {"automatic_function_calling": {"disable": True}}
    if request.system:
        config["system_instruction"] = request.system
    if request.tools:
        declared = [
            {
                "name": tool.name,
                "description": tool.description,
                "parameters_json_schema": tool.parameters,
            }
            for tool in request.tools
        ]
        config["tools"] = [{"function_declarations": declared}]
    chosen = choice(settings, request)
    if chosen is not None:
        mode: dict[str, Any] = {"mode": _CHOICES.get(chosen, "ANY")}
        if chosen not in _CHOICES:
            mode["allowed_function_names"] = [chosen]
        config["tool_config"] = {"function_calling_config": mode}
    for name, value in (
        ("temperature", settings.temperature),
        ("top_p", settings.top_p),
        ("max_output_tokens", settings.max_tokens),
        ("stop_sequences", list(settings.stop) or None),
        ("seed", settings.seed),
    ):
        if value is not None:
            config[name] = value
    if request.output is not None:
        config["response_mime_type"] = "application/json"
        config["response_json_schema"] = request.output.schema
    return {
        "model": model,
        "contents": _contents(request.messages, unsigned=_wants_signatures(model)),
        "config": merged(config, settings.extra),
    }


def _wants_signatures(model: str) -> bool:
    """Whether the model refuses calls without a signature: from Gemini 3 on."""
    found = re.search(r"gemini-(\d+)", model)
    return found is not None and int(found[1]) >= 3


def _contents(messages: Sequence[Message], *, unsigned: bool) -> list[dict[str, Any]]:
    """Turns that alternate: results are the user's. `unsigned`: mark foreign calls as such."""
    out: list[dict[str, Any]] = []
    for message in messages:
        role = "model" if isinstance(message, AssistantMessage) else "user"
        parts = list(_parts(message))
        if not parts:
            continue
        if unsigned and role == "model":
            _excuse(parts)
        if out and out[-1]["role"] == role:
            out[-1]["parts"] += parts
        else:
            out.append({"role": role, "parts": parts})
    return out


def _parts(message: Message) -> Iterable[dict[str, Any]]:
    if isinstance(message, UserMessage):
        yield from map(_part, said(message))
    elif isinstance(message, ToolMessage):
        word = "output" if message.outcome in ("ok", "answered") else "error"
        result: dict[str, Any] = {"name": message.name, "response": {word: message.text}}
        result["id"] = message.call_id
        if message.media:
            result["parts"] = [_part(part) for part in message.media]
        yield {"function_response": result}
    else:
        yield from _answer(message)


def _answer(message: AssistantMessage) -> Iterable[dict[str, Any]]:
    for part in message.parts:
        if isinstance(part, Text):
            yield {"text": part.text}
        elif isinstance(part, ToolCall):
            call = {"name": part.name, "args": dict(part.arguments), "id": part.id}
            yield {"function_call": call, **_signature(part)}
        elif signature := _signature(part):  # thoughts themselves are not sent back
            yield {"text": "", **signature}


def _excuse(parts: list[dict[str, Any]]) -> None:
    """The word with which Gemini takes calls that it has not made itself."""
    calls = [part for part in parts if "function_call" in part]
    if calls and not any("thought_signature" in part for part in parts):
        calls[0]["thought_signature"] = _bytes("skip_thought_signature_validator")


def _signature(part: Reasoning | ToolCall) -> dict[str, bytes]:
    signature = own(part.meta, PROVIDER).get("signature")
    return {"thought_signature": _bytes(signature)} if isinstance(signature, str) else {}


def _bytes(text: str) -> bytes:
    """Base64 in either alphabet."""
    return b64decode(text.replace("-", "+").replace("_", "/"))


def _part(part: Text | Image | File) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"text": part.text}
    if part.data is not None:
        return {"inline_data": {"mime_type": part.media_type, "data": part.data}}
    if part.url is None:
        raise refuse(PROVIDER, f"an {type(part).__name__} has neither data nor url", "give one")
    return {"file_data": {"mime_type": part.media_type, "file_uri": part.url}}


# ── chunks from its events ──────────────────────────────────────────────────────────────────


class GeminiReader:
    """One answer of Gemini, event by event; calls come whole."""

    def __init__(self) -> None:
        self.done = False  # usage may follow the reason; without it the end of the body ends it
        self._reason: str | None = None
        self._usage: Usage | None = None
        self._model: str | None = None
        self._id: str | None = None
        self._calls = 0

    def take(self, event: Any, /) -> Iterable[Chunk]:
        if self.done:
            return
        feedback = event.get("promptFeedback")
        if is_object(feedback) and feedback.get("blockReason"):
            why = text_in(feedback, "blockReason")
            raise ContentRefusedError(
                f"{PROVIDER}: the prompt was blocked ({why}); change what it says",
                provider=PROVIDER,
                code=why,
            )
        self._model = text_in(event, "modelVersion") or self._model
        self._id = text_in(event, "responseId") or self._id
        self._usage = usage_of(event.get("usageMetadata")) or self._usage
        for candidate in (event.get("candidates") or ())[:1]:
            content = candidate.get("content")
            for part in (content.get("parts") or ()) if is_object(content) else ():
                yield from self._part(part)
            self._reason = text_in(candidate, "finishReason") or self._reason
        self.done = self._reason is not None and self._usage is not None

    def end(self) -> Iterable[Chunk]:
        if self._reason is None:
            raise MalformedStreamError(
                f"{PROVIDER}: the answer was cut off; try again", provider=PROVIDER
            )
        if self._reason == "MALFORMED_FUNCTION_CALL":
            raise MalformedStreamError(
                f"{PROVIDER}: the model wrote a call that is none ({self._reason}); try again",
                provider=PROVIDER,
                code=self._reason,
            )
        reason = _REASONS.get(self._reason, "other")
        if self._calls and reason == "stop":
            reason = "tool_calls"
        yield Finish(
            finish_reason=reason, usage=self._usage, model=self._model, response_id=self._id
        )

    def _part(self, part: dict[str, Any]) -> Iterable[Chunk]:
        signature = text_in(part, "thoughtSignature")
        meta = {PROVIDER: {"signature": signature}} if signature else None
        call = part.get("functionCall")
        if is_object(call):
            yield ToolCallChunk(
                index=self._calls,
                id=text_in(call, "id") or None,
                name=name_in(call),
                arguments=json_text(call.get("args") or {}),
                meta=meta,
            )
            self._calls += 1
            return
        text = text_in(part, "text")
        if part.get("thought") and text:
            yield ReasoningChunk(text)
        elif text:
            yield TextChunk(text)
        if meta:
            yield PartEndChunk("reasoning", meta)


def usage_of(usage: object) -> Usage | None:
    """The tokens, where there is an account of them; thoughts are part of what came out."""
    if not is_object(usage):
        return None
    thoughts = count(usage, "thoughtsTokenCount")
    return Usage(
        input_tokens=count(usage, "promptTokenCount") + count(usage, "toolUsePromptTokenCount"),
        output_tokens=count(usage, "candidatesTokenCount") + thoughts,
        cache_read_tokens=count(usage, "cachedContentTokenCount"),
        reasoning_tokens=thoughts,
    )


_NOT_WIRE: Final = {"sdk_http_response", "automatic_function_calling_history", "parsed"}

# ── the client ──────────────────────────────────────────────────────────────────────────────

_opened: ContextVar[list[Any]] = ContextVar("hookline_google_opened")


async def _remember(response: Any) -> None:
    """The SDK keeps the response to itself; who closes it must know it."""
    _opened.get([]).append(response)


class GoogleModel:
    """A Gemini model: `GoogleModel("gemini-…")`.

    `client` is a `google.genai.Client` of the user's, or a function that makes one; otherwise one
    is made from `api_key` and `base_url`, or GOOGLE_API_KEY (GEMINI_API_KEY), or, for Vertex AI,
    from the variables that the SDK knows. `idle_timeout`: seconds in which something must come.
    `provider`, in errors and traces, is "gcp.gemini" or "gcp.vertex_ai". Raises UsageError where
    the SDK is not installed.
    """

    def __init__(
        self,
        name: str,
        *,
        client: Client | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> None:
        check_extra("google.genai", "google")
        if client is not None:
            aio = client if callable(client) else getattr(client, "aio", client)
            check_async(aio, "a google.genai.Client, or a function that makes one")
        self.name = name
        """The provider's name of the model."""
        self._api_key = api_key
        self._base_url = base_url
        self._idle_timeout = idle_timeout
        vertex = bool(getattr(client, "vertexai", _on_vertex()))
        self.provider = "gcp.vertex_ai" if vertex else "gcp.gemini"  # the words of telemetry
        default = "https://aiplatform.googleapis.com" if vertex else URL
        self.server_address, self.server_port = server_of(base_url, default)
        given: Any = client
        if callable(client):
            make = client
            given = lambda: _Service(make())  # noqa: E731
        elif client is not None:
            given = _Service(client)
        self._clients: Clients[_Service] = Clients(
            given, modules=MODULES, make=self._make, key=self._key, close=_Service.close
        )

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """The answer, chunk by chunk; what fails is a ModelError."""
        found = (self._api_key, *map(from_environment, KEYS))
        secrets = [each for each in found if each]
        return relay(PROVIDER, self._events(request), GeminiReader(), secrets)

    async def _events(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
        service = await self._clients.get()
        body = request_body(self.name, request)
        own_options: dict[str, Any] = body["config"].get("http_options") or {}
        body["config"]["http_options"] = {
            "timeout": int(self._idle_timeout * 1000),
            "retry_options": {"attempts": 1},
            **own_options,
        }
        try:
            config = imported("google.genai.types").GenerateContentConfig(**body["config"])
        except ValueError as exc:
            wrong = f"the SDK takes no such settings ({_places(exc)})"
            raise refuse(PROVIDER, wrong, "see its GenerateContentConfig") from None
        opened: list[Any] = []
        _opened.set(opened)
        stream: Any = await service.client.aio.models.generate_content_stream(
            model=self.name, contents=body["contents"], config=config
        )
        async with aclosing(stream):
            try:
                async for event in stream:
                    yield event.model_dump(
                        mode="json", by_alias=True, exclude_none=True, exclude=_NOT_WIRE
                    )
            except BaseException:
                for response in opened:
                    await response.aclose()
                if opened:
                    await spent(stream)
                raise

    def _make(self) -> _Service:
        key = self._api_key or from_environment(*KEYS)
        if key is None and not _on_vertex():
            raise no_key(PROVIDER, KEYS[0])
        options, http = _options(self._base_url)
        made = imported("google.genai").Client(api_key=self._api_key, http_options=options)
        return _Service(made, http)

    def _key(self) -> Hashable:
        variables = (*KEYS, "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_CLOUD_PROJECT")
        return (PROVIDER, self._api_key, self._base_url, *map(from_environment, variables))

    def __repr__(self) -> str:
        return f"<GoogleModel {self.name!r}>"


def _on_vertex() -> bool:
    """Whether the environment tells the SDK to use Vertex AI."""
    names = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE")
    return (from_environment(*names) or "false").lower() in ("1", "true")


def _places(exc: Any) -> str:
    """Which settings pydantic refuses, without their values."""
    return ", ".join(".".join(map(str, each["loc"])) for each in exc.errors())


class _Service:
    """The SDK's client, and the HTTP client below it where that is ours to close."""

    def __init__(self, client: GenaiClient, http: Any = None) -> None:
        self.client: Any = client
        self._http = http

    async def close(self) -> None:
        await self.client.aio.aclose()
        if self._http is not None:
            await self._http.aclose()


def _options(base_url: str | None) -> tuple[Any, Any]:
    """The SDK's options with an HTTP client that tells us of each response, and that client."""
    types = imported("google.genai.types")
    address = {} if base_url is None else {"base_url": base_url}
    for name in ("httpx2", "httpx"):  # which of them the SDK takes depends on its version
        try:
            http = imported(name).AsyncClient(
                event_hooks={"response": [_remember]}, follow_redirects=True
            )
            return types.HttpOptions(httpx_async_client=http, **address), http
        except (ImportError, ValueError):
            continue
    return types.HttpOptions(**address), None
