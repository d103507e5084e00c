"""OpenAI's Responses API, on the SDK `openai` (extra `openai`).

Above: a request as its JSON, and chunks from its events, both pure; below: the client. Requests
are complete in themselves (`store` is False): what the provider wants back, such as encrypted
reasoning, is kept in the messages' meta under "openai" and sent with the next request.

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
    OutputSchema,
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
    choice,
    closed,
    count,
    index_in,
    is_object,
    is_strict,
    json_text,
    location,
    merged,
    name_in,
    own,
    refuse,
    said,
    text_in,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["OpenAIModel"]

Client: TypeAlias = "AsyncOpenAI | Callable[[], AsyncOpenAI]"

PROVIDER: Final = "openai"
MODULES: Final = (
    *("openai", "openai.resources.responses.responses"),
    "openai.resources.chat.completions.completions",
)
VARIABLES: Final = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID")
_CUT: Final[dict[str, FinishReason]] = {"max_output_tokens": "length", "content_filter": "refusal"}


# ── a request as its JSON ───────────────────────────────────────────────────────────────────


def request_body(model: str, request: ModelRequest) -> dict[str, Any]:
    """What is posted to /responses; raises BadRequestError for what it has no way to say."""
    settings = request.settings
    if settings.stop:
        raise refuse(
            PROVIDER, f"the Responses API knows no stop={settings.stop!r}", "use OpenAIChatModel"
        )
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "store": False,
        "input": [item for message in request.messages for item in _items(message)],
    }
    if request.system:
        body["instructions"] = request.system
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in request.tools
        ]
    chosen = choice(settings, request)
    if chosen is not None:
        known = chosen in ("auto", "none", "required")
        body["tool_choice"] = chosen if known else {"type": "function", "name": chosen}
    for name, value in (
        ("temperature", settings.temperature),
        ("top_p", settings.top_p),
        ("max_output_tokens", settings.max_tokens),
    ):
        if value is not None:
            body[name] = value
    if request.output is not None:
        body["text"] = {"format": {"type": "json_schema", **json_schema(request.output)}}
    return merged(body, settings.extra)


def json_schema(output: OutputSchema) -> dict[str, Any]:
    """The form of the answer; strict where the schema allows it."""
    schema = closed(output.schema)
    return {"name": output.name, "schema": schema, "strict": is_strict(schema)}


def _items(message: Message) -> Iterable[dict[str, Any]]:
    if isinstance(message, UserMessage):
        yield {"role": "user", "content": [_input(part) for part in said(message)]}
    elif isinstance(message, ToolMessage):
        output: Any = message.text
        if message.media:
            output = [_input(part) for part in (Text(message.text), *message.media)]
        yield {"type": "function_call_output", "call_id": message.call_id, "output": output}
    else:
        yield from _answer(message)


def _input(part: Text | Image | File) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    if isinstance(part, Image):
        where = location(part, PROVIDER)
        return {"type": "input_image", "image_url": where, "detail": "auto"}
    if part.data is None and part.url is not None:
        return {"type": "input_file", "file_url": part.url}
    data = location(part, PROVIDER)
    return {"type": "input_file", "filename": part.name or "file", "file_data": data}


def _answer(message: AssistantMessage) -> Iterable[dict[str, Any]]:
    """The items of an answer. One that was cut off is text alone: its reasoning lost its end.

    Sealed reasoning belongs to the items after it, so these go with their ids; else without.
    """
    parts = message.parts
    sealed = not message.partial and any(
        type(part) is Reasoning and own(part.meta, PROVIDER) for part in parts
    )
    ids: Sequence[Any] = own(message.meta, PROVIDER).get("messages") or ()
    texts = sum(type(part) is Text for part in parts)
    known = iter(ids if sealed and len(ids) == texts else ())
    for part in parts:
        if isinstance(part, Text):
            item = next(known, None)
            if item is None:
                yield {"role": "assistant", "content": part.text}
            else:
                shape = {"type": "message", "role": "assistant", "status": "completed"}
                output = {"type": "output_text", "text": part.text, "annotations": ()}
                yield {**shape, **item, "content": [output]}
        elif isinstance(part, ToolCall):
            call = {"type": "function_call", "call_id": part.id, "name": part.name}
            arguments = json_text(part.arguments)
            yield {**call, **(own(part.meta, PROVIDER) if sealed else {}), "arguments": arguments}
        elif sealed:
            yield from _reasoning(part)


def _reasoning(part: Reasoning) -> Iterable[dict[str, Any]]:
    meta = own(part.meta, PROVIDER)
    if meta.get("id"):
        summary = [{"type": "summary_text", "text": part.text}] if part.text else []
        yield {"type": "reasoning", "summary": summary, **meta}


# ── chunks from its events ──────────────────────────────────────────────────────────────────


class ResponsesReader:
    """One answer of the Responses API, event by event."""

    def __init__(self) -> None:
        self.done = False
        self._reason: FinishReason = "stop"
        self._response: dict[str, Any] = {}
        self._calls: dict[int, int] = {}  # by output index: characters of arguments so far
        self._texts: set[tuple[object, object]] = set()  # the text parts that came in deltas
        self._thoughts: set[object] = set()  # the reasoning items of which something was shown
        self._messages: list[dict[str, Any]] = []
        self._refused = False

    def take(self, event: Any, /) -> Iterable[Chunk]:
        if event is None or self.done:
            return ()
        kind: str = event["type"]
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            return self._text(event, "delta")
        if kind == "response.function_call_arguments.delta":
            return self._arguments(event, text_in(event, "delta"))
        if kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            self._thoughts.add(event["output_index"])
            return (ReasoningChunk(text_in(event, "delta")),)
        take = self._takes.get(kind)
        return take(self, event) if take is not None else ()

    def end(self) -> Iterable[Chunk]:
        if not self.done:
            raise MalformedStreamError(
                f"{PROVIDER}: the answer was cut off; try again", provider=PROVIDER
            )
        response = self._response
        yield Finish(
            finish_reason=self._reason,
            usage=usage_of(response.get("usage")),
            model=text_in(response, "model") or None,
            response_id=text_in(response, "id") or None,
            meta={PROVIDER: {"messages": self._messages}} if self._messages else None,
        )

    def _text(self, event: dict[str, Any], field: str) -> Iterable[Chunk]:
        self._texts.add((event.get("output_index"), event.get("content_index")))
        self._refused = self._refused or event["type"].startswith("response.refusal")
        return (TextChunk(text_in(event, field)),)

    def _whole_text(self, event: dict[str, Any]) -> Iterable[Chunk]:
        if (event.get("output_index"), event.get("content_index")) in self._texts:
            return ()
        return self._text(event, "refusal" if "refusal" in event["type"] else "text")

    def _arguments(self, event: dict[str, Any], more: str) -> Iterable[Chunk]:
        index = index_in(event, "output_index")
        self._calls[index] += len(more)
        return (ToolCallChunk(index=index, arguments=more),)

    def _whole_arguments(self, event: dict[str, Any]) -> Iterable[Chunk]:
        index = index_in(event, "output_index")
        if self._calls[index]:
            return ()
        return self._arguments(event, text_in(event, "arguments"))

    def _new_summary(self, event: dict[str, Any]) -> Iterable[Chunk]:
        """Summaries of one reasoning item are paragraphs of one text."""
        return (ReasoningChunk("\n\n"),) if event["output_index"] in self._thoughts else ()

    def _item_added(self, event: dict[str, Any]) -> Iterable[Chunk]:
        item = event["item"]
        if item["type"] != "function_call":
            return ()
        return self._new_call(index_in(event, "output_index"), item)

    def _new_call(self, index: int, item: dict[str, Any]) -> Iterable[Chunk]:
        self._calls.setdefault(index, 0)
        id = text_in(item, "id")
        return (
            ToolCallChunk(
                index=index,
                id=text_in(item, "call_id") or None,
                name=name_in(item),
                meta={PROVIDER: {"id": id}} if id else None,
            ),
        )

    def _item_done(self, event: dict[str, Any]) -> Iterable[Chunk]:
        item, index = event["item"], index_in(event, "output_index")
        kind = item["type"]
        if kind == "message":
            kept = {name: text_in(item, name) for name in ("id", "phase") if item.get(name)}
            if kept.get("id"):
                self._messages.append(kept)
            yield PartEndChunk("text")
        elif kind == "reasoning":
            sealed = text_in(item, "encrypted_content")
            meta = {"id": text_in(item, "id"), "encrypted_content": sealed} if sealed else None
            yield PartEndChunk("reasoning", {PROVIDER: meta} if meta else None)
        elif kind == "function_call":
            if index not in self._calls:
                yield from self._new_call(index, item)
            if not self._calls[index]:
                yield from self._arguments(event, text_in(item, "arguments"))

    def _ended(self, event: dict[str, Any]) -> Iterable[Chunk]:
        response = self._response = event["response"]
        self.done = True
        if event["type"] == "response.incomplete":
            details = response.get("incomplete_details")
            why = details.get("reason") if is_object(details) else None
            self._reason = _CUT.get(str(why), "other")
        elif self._calls:
            self._reason = "tool_calls"
        elif self._refused:
            self._reason = "refusal"
        return ()

    def _failed(self, event: dict[str, Any]) -> Iterable[Chunk]:
        raise told(PROVIDER, (event.get("response") or event).get("error") or event)

    _takes: ClassVar[dict[str, Callable[[Any, dict[str, Any]], Iterable[Chunk]]]] = {
        "response.output_text.done": _whole_text,
        "response.refusal.done": _whole_text,
        "response.function_call_arguments.done": _whole_arguments,
        "response.reasoning_summary_part.added": _new_summary,
        "response.output_item.added": _item_added,
        "response.output_item.done": _item_done,
        "response.completed": _ended,
        "response.incomplete": _ended,
        "response.failed": _failed,
        "error": _failed,
    }


def usage_of(usage: object) -> Usage | None:
    """The tokens, where there is an account of them."""
    if not is_object(usage):
        return None
    return Usage(
        input_tokens=count(usage, "input_tokens"),
        output_tokens=count(usage, "output_tokens"),
        cache_read_tokens=count(usage, "input_tokens_details", "cached_tokens"),
        cache_write_tokens=count(usage, "input_tokens_details", "cache_write_tokens"),
        reasoning_tokens=count(usage, "output_tokens_details", "reasoning_tokens"),
    )


# ── the client ──────────────────────────────────────────────────────────────────────────────


class Connection:
    """How an OpenAI model reaches its service: a client per event loop, and its keys."""

    def __init__(self, client: Client | None, api_key: str | None, base_url: str | None) -> None:
        check_extra("openai", "openai")
        if client is not None:
            check_async(client, "an AsyncOpenAI, or a function that makes one")
        self._api_key = api_key
        self._base_url = base_url
        self._client = client
        self.clients: Clients[AsyncOpenAI] = Clients(
            client,
            modules=MODULES,
            make=self._make,
            key=self._key,
            close=lambda client: client.close(),
            prepare=lambda client: client.with_options(max_retries=0),
        )

    def _make(self) -> AsyncOpenAI:
        key = self._api_key or from_environment("OPENAI_API_KEY")
        if key is None:
            if self._base_url is None:
                raise no_key(PROVIDER, "OPENAI_API_KEY")
            key = "none"  # a server of one's own asks for none
        made: AsyncOpenAI = imported("openai").AsyncOpenAI(api_key=key, base_url=self._base_url)
        return made

    def _key(self) -> Hashable:
        return (PROVIDER, self._api_key, self._base_url, *map(from_environment, VARIABLES))

    def secrets(self) -> list[str]:
        """What no error may hold."""
        found = (
            self._api_key,
            from_environment("OPENAI_API_KEY"),
            getattr(self._client, "api_key", None),
        )
        return [each for each in found if isinstance(each, str)]

    def server(self) -> tuple[str | None, int | None]:
        """Host and port of the service, for traces."""
        given = getattr(self._client, "base_url", None)
        here = from_environment("OPENAI_BASE_URL")
        return server_of(given, self._base_url, here, "https://api.openai.com")

    def limits(self, idle: float) -> Any:
        """Time limits between bytes and for connecting; none for the whole."""
        return imported("openai").Timeout(idle, connect=min(idle, CONNECT_TIMEOUT))


class OpenAIModel:
    """A model of OpenAI's Responses API: `OpenAIModel("gpt-…")`.

    `client` is an `AsyncOpenAI` of the user's, or a function that makes one; otherwise one is made
    from `api_key` and `base_url`, or OPENAI_API_KEY and OPENAI_BASE_URL. `idle_timeout`: seconds
    in which something must come. Raises UsageError where the SDK is not installed.
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
        self.name = name
        """The provider's name of the model."""
        self._connection = Connection(client, api_key, base_url)
        self.server_address, self.server_port = self._connection.server()
        self._idle_timeout = idle_timeout

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """The answer, chunk by chunk; what fails is a ModelError."""
        events = self._events(request)
        return relay(PROVIDER, events, ResponsesReader(), self._connection.secrets())

    async def _events(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
        body = request_body(self.name, request)
        client = await self._connection.clients.get()
        # The SDK walks through what it is given as an argument, and merges in extra_body as it is.
        sent = client.responses.with_streaming_response.create(
            model=self.name,
            input=[],
            stream=True,
            extra_body=body,
            timeout=self._connection.limits(self._idle_timeout),
        )
        async with aclosing(posted(sent)) as events:
            async for event in events:
                yield event

    def __repr__(self) -> str:
        return f"<OpenAIModel {self.name!r}>"
