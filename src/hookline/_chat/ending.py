"""How a chat ends: its response so far, and what is left to do once the outcome is decided.

The ending is a queue of acts: first the step that was broken off is closed, then each observer of
the outcome is told, then each of onChatEnd. Whoever carries it out takes one act at a time, so that
another can go on where one was cut off; no act raises, except that a throw in onChatDone is kept
for the caller.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

from hookline._base.errors import ChatAbortedError
from hookline._base.events import MessageAdded
from hookline._base.log import log_throw
from hookline._base.messages import AssistantMessage
from hookline._base.returns import Response
from hookline._base.runtime import END_CHAT, NOTHING, OUTCOME, Key
from hookline._chat.batch import ToolBatch, open_batch
from hookline._chat.state import Act, Chat, Ending
from hookline._hooks.call_rules import call, excuse, fault
from hookline._hooks.points import OnChatAbort, OnChatDone, OnChatEnd, OnChatError
from hookline._hooks.registration import Hook


def respond(chat: Chat, stop_reason: str | None, text: str | None = None) -> Response:
    """What the chat has come to so far: the text is that of its last answer."""
    answer = chat.last.message
    if text is None:
        text = answer.text if answer is not None else ""
    return Response(
        chat_id=chat.chat_id,
        text=text,
        reasoning=answer.reasoning if answer is not None else "",
        messages=tuple(chat.messages),
        usage=chat.usage,
        finish_reason=chat.last.finish_reason,
        stop_reason=stop_reason,
        pending=chat.conversation.pending if stop_reason == "approval" else (),
        output=chat.last.output,
        steps=chat.progress.steps,
    )


def end(chat: Chat) -> Ending:
    """What is left to do once the outcome is decided."""
    ending: Ending = deque()
    if chat.outcome != "done":
        ending.append(partial(_close, chat))
    view = chat.view
    outcome = {"done": view.onChatDone, "aborted": view.onChatAbort, "error": view.onChatError}
    for place, hook in enumerate(outcome[chat.outcome or "error"]):
        ending.append(partial(_observe, chat, hook, (OUTCOME, chat.outcome, place)))
    for place, hook in enumerate(view.onChatEnd):
        ending.append(partial(_observe, chat, hook, (END_CHAT, chat.outcome, place)))
    return ending


def is_close(act: Act) -> bool:
    """Whether this act closes the step that was broken off."""
    return isinstance(act, partial) and act.func is _close


async def _close(chat: Chat) -> None:
    """Keep what there is of the step that was broken off."""
    try:
        if chat.writing.untold is not None:
            message, chat.writing.untold = chat.writing.untold, None
            await chat.publish(MessageAdded, message=message)
        await _keep_partial(chat)
        batch = _open_batch(chat)
        if batch is not None:
            try:
                await batch.close()
            finally:
                batch.close_now()
    finally:
        if isinstance(chat.error, ChatAbortedError):
            chat.error.partial = tuple(chat.messages)


async def _keep_partial(chat: Chat) -> None:
    """A text that was shown and cut off is kept and marked; one that nobody saw is not."""
    assembly, chat.making.assembly = chat.making.assembly, None
    if assembly is None or not chat.live:
        await chat.take_back()
        return
    parts = assembly.partial()
    if not parts:
        return
    message = AssistantMessage(id=chat.next_id(), parts=parts, partial=True)
    try:
        await chat.commit(message, streamed=parts)
    except Exception as exc:
        log_throw(f"chat {chat.chat_id}: its partial answer was not kept", exc)
        await chat.take_back()


def _open_batch(chat: Chat) -> ToolBatch | None:
    """The step whose calls may lack results: being made, or not yet begun."""
    if chat.making.batch is not None:
        found: ToolBatch = chat.making.batch
        return found
    last = chat.messages[-1] if chat.messages else None
    if not isinstance(last, AssistantMessage) or not last.tool_calls:
        return None
    if chat.conversation.pending_step is not None:
        return None
    return open_batch(chat, chat.iteration, last.tool_calls, None)


async def _observe(chat: Chat, hook: Hook, key: Key) -> None:
    """Tell one observer how the chat ended. Only a throw in onChatDone is ever raised."""
    if not hook.alive:
        return
    try:
        await chat.runtime.step(key, _tell, NOTHING, chat, hook)
    except BaseException as raised:
        exc = fault(hook, raised)
        if hook.spec.name != "onChatDone" or chat.life.late:
            log_throw(f"hook {hook.name!r} at {hook.spec.name} raised", exc)
        else:
            chat.life.late = (exc,)
        del exc  # or its traceback would hold it


async def _tell(chat: Chat, hook: Hook) -> None:
    try:
        await call(hook, _outcome_ctx(chat, hook.spec.name), chat.conduct)
    except BaseException as raised:
        excuse(hook, raised)


def _outcome_ctx(chat: Chat, point: str) -> Any:
    run = chat.run
    if point == "onChatDone":
        assert chat.response is not None
        return OnChatDone(run=run, response=chat.response)
    if point == "onChatAbort":
        return OnChatAbort(run=run, reason=chat.reason, partial=tuple(chat.messages))
    if point == "onChatError":
        assert chat.error is not None
        return OnChatError(run=run, error=chat.error)
    assert chat.outcome is not None
    return OnChatEnd(
        run=run,
        outcome=chat.outcome,
        response=chat.response if chat.outcome == "done" else None,
        error=chat.error if chat.outcome == "error" else None,
        usage=chat.usage,
        duration=max(0.0, chat.runtime.now() - chat.progress.started),
    )
