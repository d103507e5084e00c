"""One model call: chunks in, deltas through `onDelta`, events out, an answer at the end.

What `onDelta` lets through is what is shown and what is stored. An answer that a hook gave is
played through the same way, one delta a part. The model's iterator is entered and left here, and
what it raises while it is closed never replaces how the call ended. It is long because the hot way
of a chunk is written out in it.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from types import AsyncGeneratorType
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from hookline._base.errors import ModelError, StopChat
from hookline._base.events import PartEnd, ReasoningDelta, TextDelta, ToolCallDelta
from hookline._base.input import cleaned
from hookline._base.json import clean_text, json_text
from hookline._base.log import log_throw
from hookline._base.messages import History, Reasoning, Text
from hookline._base.returns import Stop
from hookline._base.run import Run
from hookline._base.runtime import LOCAL, Json, Key
from hookline._chat.channel import SIZE
from hookline._chat.request import named
from hookline._chat.state import Chat
from hookline._hooks.call_rules import flow
from hookline._hooks.points import AroundRequest, OnDelta
from hookline._hooks.wrappers import wrap
from hookline._model.assembly import Assembly, PartKind
from hookline._model.chunks import checked
from hookline._model.model import (
    Chunk,
    Delta,
    Finish,
    ModelRequest,
    ModelResponse,
    PartEndChunk,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
)
from hookline._talk.history import check_history

R = TypeVar("R", ModelResponse, ModelResponse | Stop)
RESPONSE_JSON: Final[Json[ModelResponse | Stop]] = Json(ModelResponse | Stop)


def ask_model(
    chat: Chat, key: Key, request: ModelRequest, answer: ModelResponse | None
) -> Awaitable[ModelResponse | Stop]:
    """The model's answer, through aroundRequest, or the one that a hook has given.

    Text and calls are published as they come. A Stop where a wrapper has raised StopChat.
    """
    if answer is not None:
        return give(chat, key, answer)
    ask: Callable[..., Awaitable[ModelResponse | Stop]]
    ask = _wrapped if chat.view.aroundRequest else stream_answer
    if chat.runtime is LOCAL:
        return ask(chat, request)
    return _asked_or_recalled(chat, key, ask, request)


async def _asked_or_recalled(
    chat: Chat,
    key: Key,
    ask: Callable[..., Awaitable[ModelResponse | Stop]],
    request: ModelRequest,
) -> ModelResponse | Stop:
    response = await _step(chat, key, ask, request)
    if not chat.asked and chat.sent_tools is not None:
        chat.sent = request.replace(tools=named(request.tools, chat.sent_tools))
    return response


def give(chat: Chat, key: Key, answer: ModelResponse) -> Awaitable[ModelResponse]:
    """An answer that a hook has given: published as if the model had."""
    return _step(chat, key, play, answer)


async def _step(chat: Chat, key: Key, ask: Callable[[Chat, Any], Awaitable[R]], given: Any) -> R:
    """What `ask` makes of what is given. From the record, too, it can be taken back, or kept."""
    chat.asked = False
    response: Any = await chat.runtime.step(key, ask, RESPONSE_JSON, chat, given)
    if not chat.asked and isinstance(response, ModelResponse):
        _assembly(chat).recall(response)
    given_back: R = response
    return given_back


async def _wrapped(chat: Chat, request: ModelRequest) -> ModelResponse | Stop:
    def inner(request: ModelRequest) -> Awaitable[ModelResponse]:
        chat.sent = request
        return stream_answer(chat, request)

    ctx: AroundRequest[Any] = AroundRequest(
        run=Run(chat), iteration=chat.iteration, request=request
    )
    chat.wrapped = True
    try:
        response = await wrap(chat.view.aroundRequest, ctx, inner, chat)
    except StopChat as stop:
        return Stop(stop.reason, stop.text)
    finally:
        chat.wrapped = False
        streamed, chat.streamed = chat.streamed, None
    if streamed is None or (response is not streamed and response.parts != streamed.parts):
        # The wrapper's own answer: it is shown like the model's.
        return await play(chat, response)
    if response is not streamed:
        response = cleaned(response)
    return response if response.timing is None else replace(response, timing=None)


async def play(chat: Chat, response: ModelResponse) -> ModelResponse:
    """Show an answer that a hook gave, through onDelta, one delta a part."""
    chat.asked = True
    if chat.again and chat.attempt > 1:
        chat.shown = True
    asm = _assembly(chat)
    if chat.shown:
        await chat.take_back()
    response = cleaned(response)
    for index, part in enumerate(response.parts):
        if isinstance(part, Text):
            await _take(chat, asm, TextChunk(part.text))
            await _end_source(chat, asm)
        elif isinstance(part, Reasoning):
            await _take(chat, asm, ReasoningChunk(part.text))
            await _end_part(chat, asm, PartEndChunk("reasoning", part.meta))
        else:
            part = asm.given(part, index)
            text = json_text(part.arguments) if part.raw is None else part.raw
            chunk = ToolCallChunk(index=index, arguments=text)
            await _show_call(chat, chunk, part.id, part.name)
    return response.replace(parts=asm.whole(), timing=None)


def _assembly(chat: Chat) -> Assembly:
    """A new answer; the ids of one that is taken back are free again."""
    if chat.assembly is not None:
        chat.assembly.forget()
    limit = chat.config.limits.argument_bytes
    asm = Assembly(chat.conversation.call_ids, chat.chat_id, chat.iteration, limit)
    chat.assembly = asm
    return asm


async def stream_answer(chat: Chat, request: ModelRequest) -> ModelResponse:
    """Take the model's chunks. The middle of the loop is the hot path: one event per chunk."""
    chat.asked = True
    if chat.again and chat.attempt > 1:
        chat.shown = True
    asm = _assembly(chat)
    if chat.shown:
        await chat.take_back()  # the model is asked again
    if request.messages is not chat.base_messages:
        check_history(request.messages)  # a hook wrote them: no provider is sent a broken pair
        if not isinstance(request.messages, (tuple, History)):
            request = request.replace(messages=tuple(request.messages))
    finish: Finish | None = None
    ended = False
    view, outlet, live = chat.view, chat.outlet, chat.live
    chat_id, path, items, iteration = chat.chat_id, outlet.path, outlet.items, chat.iteration
    buffer = outlet.buffer
    clock, began, first = None, 0.0, 0.0
    if chat.wrapped:  # somebody can see how long it took
        clock = chat.deadlines.clock
        began = clock()
    chat.asking = True
    chunks: Any = request.model.stream(request)
    made = chunks.__class__ is AsyncGeneratorType  # closes itself at its end
    if not made and not hasattr(chunks, "__aiter__"):
        chunks = await _iterator(chunks)
    try:
        async for chunk in chunks:
            if chat.broken:
                chat.check()
            kind: type[Any] = chunk.__class__
            if kind is TextChunk and asm.hot and not view.onDelta:
                text = chunk.text
                if text.__class__ is not str or not text.isascii():
                    text = clean_text(checked(chunk).text)
                elif not text:
                    continue
                if not live:
                    asm.text.append(text)
                    continue
                if len(items) >= SIZE:
                    await outlet.room()
                asm.text.append(text)
                seq = buffer.seq = buffer.seq + 1
                event = TextDelta(
                    chat_id=chat_id, path=path, iteration=iteration, text=text, seq=seq
                )
                outlet.put(event)
            elif kind is ToolCallChunk and asm.source is None and not view.onDelta and not finish:
                id, name = asm.call(checked(chunk))
                if clock and not first:
                    first = clock()
                if live:
                    if len(items) >= SIZE:
                        await outlet.room()
                    if not chat.shown:
                        chat.shown = True
                    seq = buffer.seq = buffer.seq + 1
                    outlet.put(
                        ToolCallDelta(
                            chat_id=chat_id,
                            path=path,
                            seq=seq,
                            iteration=iteration,
                            index=chunk.index,
                            call_id=id,
                            name=name,
                            arguments=chunk.arguments,
                        )
                    )
            elif finish is not None:
                raise ModelError(
                    f"the model sent a {kind.__name__} after its Finish; let its adapter yield "
                    "Finish last"
                )
            elif kind is Finish:
                finish = checked(chunk)
                asm.hot = False
            else:  # the first chunk of a text, too
                if clock and not first:
                    first = clock()
                await _take(chat, asm, checked(chunk))
        ended = made
    except CancelledError as exc:
        if chat.broken or chat.cancelled:
            raise
        raise ModelError(
            "the model raised CancelledError, and nobody had cancelled it; let its adapter raise a "
            "ModelError instead"
        ) from exc
    finally:
        chat.asking = False
        if not ended and hasattr(chunks, "aclose"):
            try:
                await chunks.aclose()
            except Exception as exc:
                log_throw("the model's stream raised while it was closed", exc)
    if finish is None:
        raise ModelError(
            "the model's stream ended without Finish, so its answer may be cut off; "
            "ask again, or let the adapter yield Finish(...) last"
        )
    if asm.source is not None:
        await _end_source(chat, asm)
    if finish.usage is not None:
        chat.add_usage(finish.usage)
    if clock is None:
        return asm.finish(finish)
    end = clock()
    chat.streamed = asm.finish(finish, (first or end) - began, end - began)
    return chat.streamed


async def _iterator(chunks: Any) -> Any:
    """What an `async def stream(...)` gives that returns an iterator and is no generator."""
    if isawaitable(chunks):
        chunks = await chunks
    if not hasattr(chunks, "__aiter__"):
        kind = type(chunks).__name__
        raise ModelError(
            f"the model's stream() gave a {kind} and no async iterator; make it an async generator"
        )
    return chunks


# ── one chunk ───────────────────────────────────────────────────────────────────────────────


async def _take(chat: Chat, asm: Assembly, chunk: Chunk) -> None:
    """Take one chunk through onDelta, ending the open part first where it begins another."""
    if isinstance(chunk, ToolCallChunk):
        if asm.source is not None:
            await _end_source(chat, asm)
        id, name = asm.call(chunk)
        await _show_call(chat, chunk, id, name)
    elif isinstance(chunk, (TextChunk, ReasoningChunk)):
        if not chunk.text:
            return
        kind: PartKind = "text" if isinstance(chunk, TextChunk) else "reasoning"
        if asm.source != kind:
            if asm.source is not None:
                await _end_source(chat, asm)
            asm.source = kind
        if chat.view.onDelta:
            for delta in await _through(chat, chunk):
                await _say(chat, asm, delta)
        else:
            await _say(chat, asm, chunk)
    else:
        assert isinstance(chunk, PartEndChunk)
        if asm.source != chunk.part:
            await _end_source(chat, asm)  # a part without text: reasoning that is only signed
        await _end_part(chat, asm, chunk)


async def _end_source(chat: Chat, asm: Assembly) -> None:
    """The model goes on to something else: what it was sending is complete."""
    if asm.source is not None:
        await _end_part(chat, asm, PartEndChunk(asm.source))


async def _through(chat: Chat, delta: Delta) -> Any:
    ctx: OnDelta[Any] = OnDelta(run=chat.run, iteration=chat.iteration, delta=delta)
    return await flow(chat.view.onDelta, ctx, chat)


async def _say(chat: Chat, asm: Assembly, delta: TextChunk | ReasoningChunk) -> None:
    """Keep and show a piece of text."""
    kind: PartKind = "text" if isinstance(delta, TextChunk) else "reasoning"
    if asm.kind != kind:
        if asm.kind is not None:  # a hook turned one kind into the other
            await _finish_part(chat, asm, None)
        asm.open(kind)
    if chat.live and len(chat.outlet.items) >= SIZE:
        await chat.outlet.room()
    text = asm.add(clean_text(delta.text))  # kept and shown at once: nothing can come between
    if text and chat.live:
        chat.shown = True
        event = TextDelta if kind == "text" else ReasoningDelta
        chat.put(event, iteration=chat.iteration, text=text)


async def _end_part(chat: Chat, asm: Assembly, end: PartEndChunk) -> None:
    """What the model was sending is complete: hooks may let go what they held back."""
    asm.source = None
    if chat.view.onDelta:
        for delta in await _through(chat, end):
            if not isinstance(delta, PartEndChunk):
                await _say(chat, asm, delta)
    if asm.kind is None and end.meta:
        asm.open(end.part)
    await _finish_part(chat, asm, end.meta)


async def _finish_part(chat: Chat, asm: Assembly, meta: dict[str, Any] | None) -> None:
    kind, shown = asm.kind, asm.shown
    asm.close(meta)
    if shown and chat.live and kind is not None:
        await chat.publish(PartEnd, iteration=chat.iteration, part=kind)


async def _show_call(chat: Chat, chunk: ToolCallChunk, id: str, name: str) -> None:
    """Show a piece of a call, unless a hook hides it."""
    if chat.view.onDelta and not await _through(chat, chunk.replace(id=id, name=name)):
        chat.hidden |= {id}
        return
    if not chat.live:
        return
    outlet = chat.outlet
    if len(outlet.items) >= SIZE:
        await outlet.room()
    chat.shown = True
    chat.put(
        ToolCallDelta,
        iteration=chat.iteration,
        index=chunk.index,
        call_id=id,
        name=name,
        arguments=chunk.arguments,
    )
