"""`by_sentence`: check the text of an answer one sentence at a time, while it is streamed.

Text is held back until its sentence is complete. So an expensive check is called once a sentence
and not once a chunk, and what it has not seen is neither shown nor stored. How the model's text is
cut into chunks makes no difference.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, Final, TypeAlias

from hookline import ModelResponse, Run, Stop
from hookline.errors import StopChat, UsageError
from hookline.hooks._common import LAST, CallModel, Hooks, PerChat, definer
from hookline.models import Delta, PartEndChunk, TextChunk
from hookline.points import AroundRequest, OnDelta, check_number

Verdict: TypeAlias = str | Stop | None
SentenceCheck = Callable[[str, Run[Any]], Verdict | Awaitable[Verdict]]
"""A check of one sentence: None lets it pass, a text replaces it, a Stop ends the chat."""
# One blank ends a sentence, so that its end does not depend on the chunks.
_END: Final = re.compile(r"[.!?…]+[\"'”’»)\]]*\s|[。\uff01\uff1f]|\n")


def by_sentence(
    check: SentenceCheck,
    *,
    chars: int = 500,
    name: str = "by_sentence",
    inherit: bool = True,
    required: bool = True,
) -> Hooks:
    """Call `check` with each complete sentence of an answer before the sentence is shown.

    A sentence without an end is cut after `chars` characters. If `check` returns None, the sentence
    passes; a text replaces it; a Stop ends the chat and withdraws the answer. The sentence includes
    the space after it. Raises UsageError for invalid options.
    """
    check_number("by_sentence(chars=…)", chars, least=1)
    if not callable(check):
        raise UsageError(f"by_sentence({check!r}): pass a function that takes a sentence and a run")
    buffers = PerChat[list[str]](lambda run: [""])
    add = definer(name=name, inherit=inherit, required=required)

    async def delta(ctx: OnDelta[Any]) -> tuple[Delta, ...] | None:
        piece = ctx.delta
        ends = isinstance(piece, PartEndChunk) and piece.part == "text"
        if not ends and not isinstance(piece, TextChunk):
            return None
        text = buffers.of(ctx.run)
        if isinstance(piece, TextChunk):
            text[0] += piece.text
        out: list[Delta] = []
        while sentence := _first(text[0], chars, whole=ends):
            text[0] = text[0][len(sentence) :]
            result = await _apply(check, sentence, ctx.run)
            if result:
                out.append(TextChunk(result))
        return (*out, piece) if ends else tuple(out)

    async def request(ctx: AroundRequest[Any], proceed: CallModel) -> ModelResponse:
        try:
            return await proceed()
        finally:
            buffers.of(ctx.run)[0] = ""  # if it was cut off, the next text begins anew

    return (
        add("aroundRequest", request, priority=LAST),
        add("onDelta", delta, priority=LAST),
        buffers.forget(add),
    )


def _first(text: str, chars: int, *, whole: bool) -> str:
    """The first sentence of the text, if it is complete; at the end of a part, the rest."""
    end = _END.search(text, 0, chars)
    if end is not None:
        return text[: end.end()]
    return text[:chars] if whole or len(text) >= chars else ""


async def _apply(check: SentenceCheck, sentence: str, run: Run[Any]) -> str:
    """The sentence as the check leaves it. Blank text needs no check."""
    if not sentence.strip():
        return sentence
    verdict: Any = check(sentence, run)
    if isawaitable(verdict):
        verdict = await verdict
    if isinstance(verdict, Stop):
        raise StopChat(verdict.reason, verdict.text)
    if verdict is not None and not isinstance(verdict, str):
        raise UsageError(f"by_sentence: the check returned {verdict!r}; return a str, Stop or None")
    return sentence if verdict is None else verdict
