"""The least that gives the events and messages of a chat: what of W2 is data, and what is the loop.

The same structs are made, and go through the same bounded buffer from a task of their own to one
reader. There are no hooks, scopes, limits, approvals, checks, outcomes, and no abort; what goes
wrong is lost.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hookline import AssistantMessage, Text, ToolCall, ToolMessage, ToolResult, UserMessage
from hookline._base.cancel import Deadlines
from hookline._base.json import Frozen, json_text, parse_arguments
from hookline._chat.channel import SIZE, Buffer, Outlet
from hookline._hooks.bus import HookBus
from hookline._model.tool import Tool
from hookline.events import (
    MessageAdded,
    StepFinished,
    StepStarted,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.models import Finish, ModelRequest, ToolCallChunk

from . import ours

Tools = dict[str, Tool[..., Any]]

LIMIT = 1_000_000  # bytes of a call's arguments


class Reader:
    """Takes the events out of the buffer."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.loop = asyncio.get_running_loop()

    def __aiter__(self) -> Reader:
        return self

    async def __anext__(self) -> Any:
        buffer = self.buffer
        while not buffer.items:
            if buffer.ended:
                raise StopAsyncIteration
            buffer.reading = True
            if buffer.soon:
                await asyncio.sleep(0)
            else:
                reader = buffer.reader = self.loop.create_future()
                await reader
            buffer.reading = False
        event = buffer.items.pop(0)
        if buffer.writer is not None:
            buffer.admit()
        return event


async def chat(model: Any, tools: Tools, out: Outlet) -> None:
    """Ask the model until it calls no more tool."""
    id, path, items = "floor", out.path, out.items
    messages: list[Any] = [UserMessage(id=f"{id}.0", parts=(Text("go"),))]
    step = 0
    while True:
        if len(items) >= SIZE:
            await out.room()
        seq = out.buffer.seq = out.buffer.seq + 1
        out.put(StepStarted(chat_id=id, path=path, seq=seq, iteration=step))
        chunks: list[ToolCallChunk] = []
        finish = Finish()
        async for chunk in model.stream(ModelRequest(model=model, messages=messages)):
            if chunk.__class__ is ToolCallChunk:
                if len(items) >= SIZE:
                    await out.room()
                chunks.append(chunk)
                seq = out.buffer.seq = out.buffer.seq + 1
                out.put(
                    ToolCallDelta(
                        chat_id=id,
                        path=path,
                        seq=seq,
                        iteration=step,
                        index=chunk.index,
                        call_id=chunk.id or "",
                        name=chunk.name or "",
                        arguments=chunk.arguments,
                    )
                )
            elif chunk.__class__ is Finish:
                finish = chunk
        calls = tuple([_call(each) for each in chunks])
        answer = AssistantMessage(
            id=f"{id}.{len(messages)}", parts=calls, finish_reason=finish.finish_reason
        )
        messages.append(answer)
        if len(items) >= SIZE:
            await out.room()
        seq = out.buffer.seq = out.buffer.seq + 1
        out.put(MessageAdded(chat_id=id, path=path, seq=seq, message=answer))
        for call in calls:
            messages.append(await _result(call, tools[call.name], out, step, len(messages)))
        if len(items) >= SIZE:
            await out.room()
        seq = out.buffer.seq = out.buffer.seq + 1
        out.put(StepFinished(chat_id=id, path=path, seq=seq, iteration=step))
        if not calls:
            return
        step += 1


def _call(chunk: ToolCallChunk) -> ToolCall:
    arguments = Frozen(parse_arguments(chunk.arguments, limit=LIMIT))
    return ToolCall(id=chunk.id or "", name=chunk.name or "", arguments=arguments)


async def _result(
    call: ToolCall, found: Tool[..., Any], out: Outlet, step: int, number: int
) -> ToolMessage:
    id, path = "floor", out.path
    if len(out.items) >= SIZE:
        await out.room()
    seq = out.buffer.seq = out.buffer.seq + 1
    out.put(ToolCallStarted(chat_id=id, path=path, seq=seq, iteration=step, call=call))
    value = await found.fn(**found.signature.bind(call.arguments))
    if len(out.items) >= SIZE:
        await out.room()
    seq = out.buffer.seq = out.buffer.seq + 1
    out.put(
        ToolCallFinished(
            chat_id=id,
            path=path,
            seq=seq,
            iteration=step,
            call_id=call.id,
            name=call.name,
            outcome="ok",
            result=ToolResult(value),
        )
    )
    text = json_text(value)
    message = ToolMessage(id=f"{id}.{number}", call_id=call.id, name=call.name, text=text)
    if len(out.items) >= SIZE:
        await out.room()
    seq = out.buffer.seq = out.buffer.seq + 1
    out.put(MessageAdded(chat_id=id, path=path, seq=seq, message=message))
    return message


async def read_calls(model: ours.Scripted, tools: Tools) -> int:
    """One such chat, all its events read; gives the number of finished calls."""
    buffer = Buffer()
    out = Outlet(HookBus(), Deadlines(), buffer)
    task = asyncio.ensure_future(chat(model, tools, out))
    task.add_done_callback(lambda _: buffer.end())
    done = 0
    async for event in Reader(buffer):
        if type(event) is ToolCallFinished:
            done += event.outcome == "ok"
    await task
    return done
