"""Convert the events of Gemini to chunks; each call arrives whole. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from hookline import File, Usage
from hookline.errors import ContentRefusedError
from hookline.models import (
    Chunk,
    FileChunk,
    Finish,
    FinishReason,
    PartEndChunk,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
)
from hookline.providers._adapter.errors.failures import Exchange, is_error
from hookline.providers._adapter.ids import own_id
from hookline.providers._adapter.json_fields import (
    count,
    is_object,
    json_text,
    list_in,
    objects_in,
    text_in,
)
from hookline.providers._adapter.response_files import (
    UNKNOWN,
    Attachments,
    Sound,
    decoded,
    media_part,
)
from hookline.providers.google._request import PROVIDER

_REFUSALS: Final = (
    "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MODEL_ARMOR",
)  # fmt: skip
READ: Final = "URL_RETRIEVAL_STATUS_SUCCESS"
_REASONS: Final[dict[str, FinishReason]] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(_REFUSALS, "refusal"),
}


class GeminiReader:
    """Reads one response of Gemini, event by event; each call arrives whole."""

    def __init__(self, exchange: Exchange | None = None) -> None:
        self._exchange = exchange or Exchange(PROVIDER)
        self.done = False  # any chunk may have a finish reason, so the body's end is the end
        self._reason: str | None = None
        self._grounding: Any = None  # the sources of the answer
        self._read: Any = None  # the addresses that were read
        self._quoted: Any = None
        self._attachments = Attachments()
        self._sound: Sound | None = None  # audio that arrives in pieces
        self._usage: Usage | None = None
        self._model: str | None = None
        self._id: str | None = None
        self._calls = 0

    @property
    def finished(self) -> bool:
        """Whether the finish reason has arrived: if the connection then fails, nothing is lost."""
        return self._reason is not None

    def take(self, event: Any, /) -> Iterable[Chunk]:
        if is_error(event):
            raise self._exchange.error(event)
        feedback = event.get("promptFeedback")
        if is_object(feedback) and feedback.get("blockReason"):
            why = text_in(feedback, "blockReason")
            raise ContentRefusedError(
                f"{self._exchange.where}: the prompt was blocked ({why}); change the prompt",
                provider=PROVIDER,
                code=why,
            )
        self._model = text_in(event, "modelVersion") or self._model
        self._id = text_in(event, "responseId") or self._id
        self._usage = usage_of(event.get("usageMetadata")) or self._usage
        for candidate in (event.get("candidates") or ())[:1]:
            yield from self._candidate(candidate)

    def _candidate(self, candidate: dict[str, Any]) -> Iterable[Chunk]:
        content = candidate.get("content")
        for part in (content.get("parts") or ()) if is_object(content) else ():
            yield from self._part(part)
        self._reason = text_in(candidate, "finishReason") or self._reason
        self._grounding = candidate.get("groundingMetadata") or self._grounding
        self._read = candidate.get("urlContextMetadata") or self._read
        self._quoted = candidate.get("citationMetadata") or self._quoted

    def end(self) -> Iterable[Chunk]:
        if self._reason is None:
            raise self._exchange.cut_off()
        if self._reason == "MALFORMED_FUNCTION_CALL":
            raise self._exchange.malformed(
                f"{self._exchange.where}: the model wrote a malformed call ({self._reason}); "
                "try again",
                retryable=True,
                code=self._reason,
            )
        yield from self._sounded()
        cites = {"grounding": self._grounding, "citations": self._quoted}
        meta = self._exchange.meta({name: value for name, value in cites.items() if value})
        json_text(meta)  # raises if no store could keep it
        yield from self._sources()
        reason = _REASONS.get(self._reason, "other")
        if self._calls and reason == "stop":
            reason = "tool_calls"
        yield Finish(
            finish_reason=reason,
            usage=self._usage,
            model=self._model,
            response_id=self._id,
            meta=meta,
        )

    def _sources(self) -> Iterable[Chunk]:
        source = self._attachments.source
        for item in objects_in(self._grounding, "groundingChunks"):
            yield from source(item.get("web"), url="uri")
            yield from source(item.get("retrievedContext"), url="uri")
            yield from source(item.get("maps"), url="uri")
            yield from source(item.get("image"), url="sourceUri")
        for item in objects_in(self._read, "urlMetadata"):
            if item.get("urlRetrievalStatus") in (None, READ):
                yield from source(item, url="retrievedUrl", title="")
        for name in ("citations", "citationSources"):  # of the API, and of Vertex AI
            for item in list_in(self._quoted, name):
                yield from source(item, url="uri")

    def _sounded(self) -> Iterable[Chunk]:
        """Return the collected audio, which is complete."""
        sound, self._sound = self._sound, None
        return sound.file() if sound is not None else ()

    def _media(self, part: dict[str, Any], blob: Any, meta: dict[str, Any]) -> Iterable[Chunk]:
        """Return an image, an audio or a file, unless it belongs to the thoughts."""
        if part.get("thought"):
            return
        if not is_object(blob):
            file = part["fileData"]
            kind, url = text_in(file, "mimeType"), text_in(file, "fileUri")
            yield FileChunk(File(media_type=kind or UNKNOWN, url=url or None, meta=meta))
            return
        kind, data = text_in(blob, "mimeType"), decoded(text_in(blob, "data"))
        if not kind.startswith("audio/"):
            yield from self._sounded()
            yield FileChunk(media_part(kind or UNKNOWN, data, meta))
            return
        if self._sound is None or self._sound.media_type != kind:
            yield from self._sounded()
            self._sound = Sound(kind)
        self._sound.add(data)

    def _part(self, part: dict[str, Any]) -> Iterable[Chunk]:
        blob = part.get("inlineData")
        if not is_object(blob):
            yield from self._sounded()
        signature = text_in(part, "thoughtSignature")
        own = {"signature": signature} if signature else {}
        call = part.get("functionCall")
        if is_object(call):
            yield self._call(call, own)
            return
        if is_object(blob) or is_object(part.get("fileData")):
            yield from self._media(part, blob, {self._exchange.server: own})
            return
        if part.get("executableCode") or part.get("codeExecutionResult"):
            record = {name: value for name, value in part.items() if value is not None}
            json_text(record)  # raises if no store could keep it
            yield PartEndChunk("reasoning", self._exchange.meta({"part": record}))
            return
        text = text_in(part, "text")
        if part.get("thought") and text:
            yield ReasoningChunk(text)
        elif text:
            yield TextChunk(text)
        if own:
            yield PartEndChunk("reasoning", self._exchange.meta(own))

    def _call(self, call: dict[str, Any], own: dict[str, Any]) -> Chunk:
        own = {**own, **own_id(text_in(call, "id"))}
        index, self._calls = self._calls, self._calls + 1
        return ToolCallChunk(
            index=index,
            id=text_in(call, "id") or None,
            name=text_in(call, "name"),
            arguments=json_text(call.get("args") or {}),
            meta=self._exchange.meta(own),
        )


def usage_of(usage: object) -> Usage | None:
    """Read the usage, if present. Thoughts count as output tokens."""
    if not is_object(usage):
        return None
    thoughts = count(usage, "thoughtsTokenCount")
    return Usage(
        input_tokens=count(usage, "promptTokenCount") + count(usage, "toolUsePromptTokenCount"),
        output_tokens=count(usage, "candidatesTokenCount") + thoughts,
        cache_read_tokens=count(usage, "cachedContentTokenCount"),
        reasoning_tokens=thoughts,
    )
