"""One model call: chunks in, deltas through `onDelta`, events out, an answer at the end.

The text that `onDelta` lets through is both shown and stored. An answer from a hook takes the same
path, with one delta for each part. The model's iterator is opened and closed here. An exception
while it is closed never replaces the result of the call.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import AsyncIterator, Awaitable, Sequence
from inspect import isawaitable
from types import AsyncGeneratorType
from typing import Any, Final

from msgspec.structs import replace

from hookline._base.cancel import Expired, being_cancelled
from hookline._base.errors import IdleTimeoutError, ModelError, StopChat
from hookline._base.events import PartEnd, TextDelta, ToolCallDelta
from hookline._base.input import without_surrogates
from hookline._base.json import clean_text, json_text
from hookline._base.log import log_throw
from hookline._base.messages import History, Reasoning, Source, Text, ToolCall
from hookline._base.returns import Stop
from hookline._chat.channel import HIGH_WATER
from hookline._chat.recorder import ChatReturns
from hookline._chat.request import tools_by_name
from hookline._chat.shown import DELTAS, show_part, take_back
from hookline._chat.state import Chat
from hookline._conversations.history import check_history
from hookline._hooks.call_rules import flow
from hookline._hooks.points import AroundRequest, OnDelta
from hookline._hooks.wrappers import wrap
from hookline._model.assembly import Assembly, PartKind
from hookline._model.chunks import measure
from hookline._model.model import (
    Delta,
    FileChunk,
    Finish,
    ModelRequest,
    ModelResponse,
    PartEndChunk,
    ReasoningChunk,
    SourceChunk,
    TextChunk,
    ToolCallChunk,
    without_foreign_items,
)
from hookline._record.runtime import LOCAL, Json


def ask_model(
    chat: Chat, request: ModelRequest | None, answer: ModelResponse | None
) -> Awaitable[ModelResponse | Stop]:
    """The model's answer, through aroundRequest, or the answer that a hook has given.

    Returns a Stop if a wrapper, or a hook at onDelta, has raised StopChat.
    """
    if answer is not None:
        return show_answer(chat, answer)
    assert request is not None
    ask = _with_wrappers if chat.view.aroundRequest else stream_answer
    return ask(chat, request)


async def _recall_answer(
    response: ModelResponse | Stop,
    chat: Chat,
    request: ModelRequest | None,
    answer: ModelResponse | None,
) -> None:
    """Restore the assembly of a recorded answer, and the tools that its wrappers had offered."""
    step = chat.step
    if isinstance(response, ModelResponse):
        _begin_answer(chat).recall(response)
    # A replay runs no wrapper, so the record has the names of the tools.
    if step.sent_tools is not None and answer is None and request is not None:
        tools = tools_by_name(request.tools, step.sent_tools)
        step.final_request = request.replace(tools=tools)


ANSWER: Final[ChatReturns[ModelResponse | Stop]] = ChatReturns(
    form=Json(ModelResponse | Stop), on_replay=_recall_answer
)


async def _with_wrappers(chat: Chat, request: ModelRequest) -> ModelResponse | Stop:
    """The answer from the wrappers at aroundRequest, which may be their own."""

    def inner(request: ModelRequest) -> Awaitable[ModelResponse]:
        chat.step.final_request = request
        return stream_answer(chat, request)

    ctx: AroundRequest[Any] = AroundRequest(run=chat.run, iteration=chat.iteration, request=request)
    chat.step.has_wrappers = True  # so that the answer has its timing, which is for wrappers alone
    try:
        response = await wrap(chat.view.aroundRequest, ctx, inner, chat)
    except StopChat as stop:
        return Stop(stop.reason, stop.text)
    finally:
        chat.step.has_wrappers = False
        streamed, chat.step.streamed = chat.step.streamed, None
    # An answer that the model did not stream, or not so, has yet to be shown.
    if streamed is None or (response is not streamed and response.parts != streamed.parts):
        return await replay_answer(chat, response)
    if response is not streamed:
        response = without_surrogates(response)
    return response if response.timing is None else replace(response, timing=None)


def _begin_answer(chat: Chat) -> Assembly:
    """Begin an answer. The call ids of an answer that is taken back are free again."""
    step = chat.step
    if step.assembly is not None:
        step.assembly.forget()
    step.streamed = None
    limit = chat.config.limits.argument_bytes
    step.assembly = Assembly(chat.conversation.call_ids, chat.chat_id, chat.iteration, limit)
    return step.assembly


async def _take_back_earlier(chat: Chat) -> None:
    """Take back the text of an earlier attempt, which an earlier life may have shown.

    This comes first: if it is cut off, the text is still shown, and kept.
    """
    chat.step.visible = True
    await take_back(chat)


async def show_answer(chat: Chat, response: ModelResponse) -> ModelResponse | Stop:
    """Show an answer from a hook; returns a Stop if a hook at onDelta has raised StopChat."""
    try:
        return await replay_answer(chat, response)
    except StopChat as stop:
        return Stop(stop.reason, stop.text)


async def replay_answer(chat: Chat, response: ModelResponse) -> ModelResponse:
    """Show an answer from a hook through onDelta, one delta for each part."""
    if chat.step.visible or (chat.runtime is not LOCAL and chat.attempt > 1):
        await _take_back_earlier(chat)
    asm = _begin_answer(chat)
    response = without_surrogates(response)
    for index, part in enumerate(response.parts):
        await chat.room()
        if isinstance(part, Text):
            await _take(chat, asm, TextChunk(part.text))
            await _end_part(chat, asm, PartEndChunk("text", part.meta))
        elif isinstance(part, Reasoning):
            await _take(chat, asm, ReasoningChunk(part.text))
            await _end_part(chat, asm, PartEndChunk("reasoning", part.meta))
        elif isinstance(part, ToolCall):
            part = asm.with_id(part, index)
            text = json_text(part.arguments) if part.raw is None else part.raw
            chunk = ToolCallChunk(index=index, arguments=text)
            if not (chat.view.onDelta and await _is_hidden(chat, chunk, part.id, part.name)):
                _show_call(chat, chunk, part.id, part.name)
        else:
            whole = SourceChunk(part) if isinstance(part, Source) else FileChunk(part)
            await _take(chat, asm, whole)
    return response.replace(parts=asm.whole(), timing=None)


# ── the model's stream ──────────────────────────────────────────────────────────────────────


async def stream_answer(chat: Chat, request: ModelRequest) -> ModelResponse:
    """The model's answer, within the time limit: a service may send for ever."""
    step, deadlines, limit = chat.step, chat.deadlines, chat.config.limits.request_seconds
    if step.visible or (chat.runtime is not LOCAL and chat.attempt > 1):
        await _take_back_earlier(chat)
    asm = _begin_answer(chat)
    if request.messages is not step.base_messages:  # the history itself, which is valid
        request = _check_messages(request)
    if request.output is not None:
        request = without_foreign_items(request)
    asm.began, asm.reader_seconds = deadlines.clock(), chat.progress.reader_seconds
    try:
        finish = await deadlines.run(_read(chat, asm, request), limit, "the model")
    except Expired:
        raise IdleTimeoutError(
            f"the model call took longer than Limits.request_seconds={limit:g} and was stopped; "
            "try again, ask for a shorter answer, or raise the limit"
        ) from None
    except CancelledError as exc:
        if chat.broken or chat.cancelled:
            raise
        # Passed on, it would look as if the caller had cancelled the chat.
        raise ModelError(
            "the model raised CancelledError although nothing had cancelled it; its adapter must "
            "raise a ModelError instead"
        ) from exc
    if asm.source is not None:
        await _end_source(chat, asm)
    if finish.usage is not None:
        chat.add_usage(finish.usage)
    if not step.has_wrappers:
        return asm.finish(finish)
    if asm.first is None:
        asm.first = deadlines.clock()
    timing = asm.timing(deadlines.clock(), chat.progress.reader_seconds)
    step.streamed = asm.finish(finish, timing)
    return step.streamed


def _check_messages(request: ModelRequest) -> ModelRequest:
    """The request with valid messages; raises HistoryError if hooks have broken a call pair."""
    check_history(request.messages)
    if isinstance(request.messages, (tuple, History)):
        return request
    return request.replace(messages=tuple(request.messages))


async def _read(chat: Chat, asm: Assembly, request: ModelRequest) -> Finish:
    """Open the model's stream, read it and close it."""
    chunks: Any = None
    finish: Finish | None = None
    chat.step.asking = True
    try:
        chunks = request.model.stream(request)
        if not hasattr(chunks, "__aiter__"):
            chunks = await _iterator(chunks)
        finish = await _read_chunks(chat, asm, chunks)
    finally:
        chat.step.asking = False
        # A generator that has ended is closed.
        if finish is None or chunks.__class__ is not AsyncGeneratorType:
            await _close(chunks)
    if finish is None:
        raise ModelError(
            "the model's stream ended without Finish, so its answer may be cut off; "
            "ask again, or let the adapter yield Finish(...) last"
        )
    return finish


async def _read_chunks(chat: Chat, asm: Assembly, chunks: AsyncIterator[Any]) -> Finish | None:
    """Read the model's chunks to the end. The first branch is the hot path: one event a chunk."""
    life, view, live = chat.life, chat.view, chat.live
    items = chat.channel.items
    chat_id, iteration = chat.chat_id, chat.iteration
    limit = remaining = chat.config.limits.answer_bytes
    finish: Finish | None = None
    async for chunk in chunks:
        if life.broken:  # no cancellation reaches a model that never suspends
            chat.check()
        if len(items) > HIGH_WATER:
            await chat.room()
        kind: type[Any] = chunk.__class__
        if kind is TextChunk and asm.hot and live and chunk.text and not view.onDelta:
            # The same as `_take`, for the next piece of a text that no hook looks at. Nothing is
            # awaited here: a partial answer is exactly the shown text.
            text = chunk.text
            if text.__class__ is str and text.isascii():
                remaining -= len(text)
            else:
                remaining -= measure(chunk)
                text = clean_text(text)
            if remaining < 0:
                raise _too_long(limit)
            asm.text.append(text)
            chat.put(TextDelta(chat_id=chat_id, iteration=iteration, text=text))
        elif finish is not None:
            raise ModelError(
                f"the model sent a {kind.__name__} after its Finish; its adapter must yield Finish "
                "last"
            )
        else:
            remaining -= measure(chunk)
            if remaining < 0:
                raise _too_long(limit)
            if kind is Finish:
                finish = chunk
                asm.hot = False  # a text after Finish must not take the branch above
            else:
                await _take(chat, asm, chunk)
    return finish


def _too_long(limit: int) -> ModelError:
    return ModelError(
        f"the model's answer is longer than Limits.answer_bytes={limit} and was cut off; ask for a "
        "shorter answer, or raise the limit"
    )


async def _close(chunks: Any) -> None:
    """Close the model's stream. An exception is logged and never replaces the result."""
    if hasattr(chunks, "aclose"):
        try:
            await chunks.aclose()
        except (Exception, CancelledError) as exc:
            if isinstance(exc, CancelledError) and being_cancelled():
                raise
            log_throw("the model's stream raised an exception while it was being closed", exc)


async def _iterator(chunks: Any) -> Any:
    """The iterator that an `async def stream(...)` returns if it is not a generator."""
    if isawaitable(chunks):
        chunks = await chunks
    if not hasattr(chunks, "__aiter__"):
        kind = type(chunks).__name__
        raise ModelError(
            f"the model's stream() returned a {kind}, not an async iterator; make it an async "
            "generator"
        )
    return chunks


# ── one chunk ───────────────────────────────────────────────────────────────────────────────


async def _take(chat: Chat, asm: Assembly, chunk: Delta) -> None:
    """Pass one chunk through onDelta. End the open part first if the chunk begins another.

    The caller has waited for room. Without hooks, nothing is awaited here: a partial answer is
    exactly the shown text.
    """
    if asm.first is None:
        asm.first = chat.deadlines.clock()
    if isinstance(chunk, ToolCallChunk):
        if asm.source is not None:
            await _end_source(chat, asm)
        call = asm.call(chunk)
        if not (chat.view.onDelta and await _is_hidden(chat, chunk, call.id, call.name)):
            _show_call(chat, chunk, call.id, call.name)
    elif isinstance(chunk, PartEndChunk):
        if asm.source != chunk.part:
            await _end_source(chat, asm)  # a part without text: reasoning that is only signed
        await _end_part(chat, asm, chunk)
    else:
        kind: PartKind | None = None  # of a source or a file, which is a whole part
        if isinstance(chunk, (TextChunk, ReasoningChunk)):
            if not chunk.text:
                return
            kind = "text" if isinstance(chunk, TextChunk) else "reasoning"
        if asm.source != kind:
            await _end_source(chat, asm)
            asm.source = kind
        if chat.view.onDelta:
            await _emit_all(chat, asm, await _through(chat, chunk))
        else:
            _emit(chat, asm, chunk)
        if kind is None and asm.kind is not None:  # a hook replaced it by text
            _finish_part(chat, asm, None)


async def _is_hidden(chat: Chat, chunk: ToolCallChunk, id: str, name: str) -> bool:
    """Return whether a hook hides this piece of a call."""
    if await _through(chat, chunk.replace(id=id, name=name)):
        return False
    chat.step.hidden_calls |= {id}
    return True


def _show_call(chat: Chat, chunk: ToolCallChunk, id: str, name: str) -> None:
    """Show a piece of a call."""
    if chat.live:
        chat.step.visible = True
        chat.put(
            ToolCallDelta(
                chat_id=chat.chat_id,
                iteration=chat.iteration,
                index=chunk.index,
                call_id=id,
                name=name,
                arguments=chunk.arguments,
            )
        )


async def _end_source(chat: Chat, asm: Assembly) -> None:
    """End the part that the model was sending, since it goes on to another part."""
    if asm.source is not None:
        await _end_part(chat, asm, PartEndChunk(asm.source))


async def _end_part(chat: Chat, asm: Assembly, end: PartEndChunk) -> None:
    """End a part. Hooks may release text that they held back."""
    asm.source = None
    whole: list[Delta] = []  # parts that hooks add come after this one
    if chat.view.onDelta:
        text: list[Delta] = []
        for delta in await _through(chat, end):
            if isinstance(delta, (TextChunk, ReasoningChunk)):
                text.append(delta)
            elif not isinstance(delta, PartEndChunk):
                whole.append(delta)
        await _emit_all(chat, asm, text)
    if asm.kind is None and end.meta:  # a signature without text must be sent back, too
        asm.kind = end.part
    _finish_part(chat, asm, end.meta)
    if whole:
        await _emit_all(chat, asm, whole)


async def _emit_all(chat: Chat, asm: Assembly, deltas: Sequence[Delta]) -> None:
    """Keep and show what hooks have made of a chunk; each delta waits for room."""
    for delta in deltas:
        if len(chat.channel.items) > HIGH_WATER:
            await chat.room()
        _emit(chat, asm, delta)


async def _through(chat: Chat, delta: Delta) -> Any:
    ctx: OnDelta[Any] = OnDelta(run=chat.run, iteration=chat.iteration, delta=delta)
    return await flow(chat.view.onDelta, ctx, chat)


# ── one delta, as hooks have left it ────────────────────────────────────────────────────────


def _emit(chat: Chat, asm: Assembly, delta: Delta) -> None:
    """Keep and show a delta."""
    if isinstance(delta, (TextChunk, ReasoningChunk)):
        _emit_text(chat, asm, delta)
        return
    assert isinstance(delta, (SourceChunk, FileChunk))
    if asm.kind is not None:
        _finish_part(chat, asm, None)
    part = asm.add_part(delta.source if isinstance(delta, SourceChunk) else delta.file)
    if chat.live:
        chat.step.visible = True
        show_part(chat, part)


def _emit_text(chat: Chat, asm: Assembly, delta: TextChunk | ReasoningChunk) -> None:
    """Keep and show a piece of text."""
    kind: PartKind = "text" if isinstance(delta, TextChunk) else "reasoning"
    if asm.kind != kind:
        if asm.kind is not None:  # a hook turned one kind into the other
            _finish_part(chat, asm, None)
        asm.kind = kind
    text = asm.add(clean_text(delta.text))
    if text and chat.live:
        chat.step.visible = True
        event = DELTAS[kind](chat_id=chat.chat_id, iteration=chat.iteration, text=text)
        chat.put(event)


def _finish_part(chat: Chat, asm: Assembly, meta: dict[str, Any] | None) -> None:
    kind, has_text = asm.kind, asm.visible
    asm.close(meta)
    if has_text and chat.live and kind is not None:
        chat.put(PartEnd(chat_id=chat.chat_id, iteration=chat.iteration, part=kind))
