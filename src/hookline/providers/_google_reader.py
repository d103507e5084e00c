"""Chunks from the events of Gemini; calls come whole. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from hookline import Usage
from hookline.errors import ContentRefusedError
from hookline.models import (
    Chunk,
    Finish,
    FinishReason,
    PartEndChunk,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
)
from hookline.providers._failures import Exchange
from hookline.providers._google_request import PROVIDER
from hookline.providers._ids import own_id
from hookline.providers._parts import count, is_object, json_text, name_in, text_in

_REFUSALS: Final = (
    "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MODEL_ARMOR",
)  # fmt: skip
_REASONS: Final[dict[str, FinishReason]] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(_REFUSALS, "refusal"),
}


class GeminiReader:
    """One answer of Gemini, event by event; calls come whole."""

    def __init__(self, exchange: Exchange | None = None) -> None:
        self._exchange = exchange or Exchange(PROVIDER)
        self.done = False  # usage may follow the reason; without it the end of the body ends it
        self._reason: str | None = None
        self._grounding: Any = None  # which sources an answer is from
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
                f"{self._exchange.where}: the prompt was blocked ({why}); change what it says",
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
            self._grounding = candidate.get("groundingMetadata") or self._grounding
        self.done = self._reason is not None and self._usage is not None

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
        reason = _REASONS.get(self._reason, "other")
        if self._calls and reason == "stop":
            reason = "tool_calls"
        yield Finish(
            finish_reason=reason,
            usage=self._usage,
            model=self._model,
            response_id=self._id,
            meta={PROVIDER: {"grounding": self._grounding}} if self._grounding else None,
        )

    def _part(self, part: dict[str, Any]) -> Iterable[Chunk]:
        signature = text_in(part, "thoughtSignature")
        kept = {"signature": signature} if signature else {}
        call = part.get("functionCall")
        if is_object(call):
            kept |= own_id(text_in(call, "id"))
        meta = {PROVIDER: kept} if kept else None
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
        if part.get("executableCode") or part.get("codeExecutionResult"):
            kept = {name: each for name, each in part.items() if each is not None}
            json_text(kept)  # raises for what no store could keep
            yield PartEndChunk("reasoning", {PROVIDER: {"part": kept}})
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
