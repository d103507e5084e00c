"""The end of a chat: its response so far, and the work left once the outcome is decided.

The ending is a queue of acts. The first act closes the broken step. Then each observer of the
outcome is called, then each observer at onChatEnd. The last act returns the messages that came too
late. The acts are taken one at a time, so that a second task can go on if the first task was cut
off. No act raises. An exception in onChatDone is kept for the caller.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

from hookline._base.errors import ChatAbortedError
from hookline._base.log import log_throw
from hookline._base.messages import AssistantMessage
from hookline._base.returns import Response
from hookline._chat.batch import ToolBatch, open_batch
from hookline._chat.commit import announce_late, commit
from hookline._chat.shown import take_back
from hookline._chat.state import Act, Chat, Ending
from hookline._chat.steering import return_input
from hookline._hooks.call_rules import notify
from hookline._hooks.one_hook import fault
from hookline._hooks.points import OnChatAbort, OnChatDone, OnChatEnd, OnChatError
from hookline._hooks.registration import Hook
from hookline._record.runtime import END_CHAT, FINAL_MESSAGE, LOCAL, NOTHING, OUTCOME, Key


def respond(chat: Chat, stop_reason: str | None, text: str | None = None) -> Response:
    """The response so far, with the text of the last answer."""
    answer = chat.last.message
    if text is None:
        text = answer.text if answer is not None else ""
    waits = stop_reason in ("approval", "client_tool")
    return Response(
        chat_id=chat.chat_id,
        text=text,
        reasoning=answer.reasoning if answer is not None else "",
        messages=tuple(chat.messages),
        usage=chat.usage,
        finish_reason=chat.last.finish_reason,
        stop_reason=stop_reason,
        pending=chat.conversation.pending if waits else (),
        client_calls=chat.conversation.client_calls if waits else (),
        output=chat.last.output,
        steps=chat.progress.steps,
    )


def end(chat: Chat) -> Ending:
    """The work left once the outcome is decided."""
    ending: Ending = deque()
    if chat.life.outcome != "done":
        ending.append(partial(_close, chat))
    view = chat.view
    outcome = {"done": view.onChatDone, "aborted": view.onChatAbort, "error": view.onChatError}
    for place, hook in enumerate(outcome[chat.life.outcome or "error"]):
        ending.append(partial(_observe, chat, hook, (OUTCOME, chat.life.outcome, place)))
    for place, hook in enumerate(view.onChatEnd):
        ending.append(partial(_observe, chat, hook, (END_CHAT, chat.life.outcome, place)))
    if chat.runtime is not LOCAL or chat.progress.inbox is not None:
        ending.append(partial(return_input, chat))
    return ending


def is_close(act: Act) -> bool:
    """Whether this act closes the broken step."""
    return isinstance(act, partial) and act.func is _close


async def _close(chat: Chat) -> None:
    """Close the broken step: keep its partial answer, and give each call a result."""
    try:
        try:
            await announce_late(chat)
        except Exception as exc:
            log_throw(f"chat {chat.chat_id}: a hook at onMessage failed after the chat's end", exc)
        await _keep_partial(chat)
        batch = _open_batch(chat)
        if batch is not None:
            await batch.close()
    finally:  # also if a hook hangs and this was cancelled
        batch = _open_batch(chat)
        if batch is not None:
            batch.close_now()
            batch.give_back()
        if isinstance(chat.error, ChatAbortedError):
            chat.error.partial = tuple(chat.messages)


async def _keep_partial(chat: Chat) -> None:
    """Keep a partial answer that was shown, and mark it. Drop an answer that nobody saw.

    An answer that an earlier life of the chat has kept is kept.
    """
    assembly, chat.step.assembly = chat.step.assembly, None
    parts = assembly.partial() if assembly is not None and chat.live else ()
    if not parts and not _was_kept(chat):
        if assembly is None or not chat.live:
            await take_back(chat)
        return
    message = AssistantMessage(parts=parts, partial=True)
    try:
        await commit(chat, message, streamed=parts)
    except Exception as exc:
        log_throw(f"chat {chat.chat_id}: its partial answer was not kept", exc)
        await take_back(chat)


def _was_kept(chat: Chat) -> bool:
    earlier = chat.conversation.earlier_messages
    if earlier:
        return isinstance(earlier[0], AssistantMessage)
    return chat.runtime.has_begun((FINAL_MESSAGE, chat.life.outcome, "assistant"))


def _open_batch(chat: Chat) -> ToolBatch | None:
    """The batch whose calls may lack results; its calls may not have begun yet."""
    if chat.step.batch is not None:
        batch: ToolBatch = chat.step.batch
        return batch
    last = chat.messages[-1] if chat.messages else None
    if not isinstance(last, AssistantMessage):
        return None
    if chat.conversation.pending_step is not None:
        return None  # its calls wait for a later chat
    return open_batch(chat, chat.iteration, last.parts, None)


async def _observe(chat: Chat, hook: Hook, key: Key) -> None:
    """Call one observer of the end. Only an exception in onChatDone reaches the caller."""
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
    await notify((hook,), _outcome_ctx(chat, hook.spec.name), chat.firing)


def _outcome_ctx(chat: Chat, point: str) -> Any:
    run = chat.run
    if point == "onChatDone":
        assert chat.response is not None
        return OnChatDone(run=run, response=chat.response)
    if point == "onChatAbort":
        return OnChatAbort(
            run=run,
            reason=chat.reason,
            partial=tuple(chat.messages),
            by_reader=chat.aborted_by_reader,
        )
    if point == "onChatError":
        assert chat.error is not None
        return OnChatError(run=run, error=chat.error)
    assert chat.life.outcome is not None
    return OnChatEnd(
        run=run,
        outcome=chat.life.outcome,
        response=chat.response if chat.life.outcome == "done" else None,
        error=chat.error if chat.life.outcome == "error" else None,
        usage=chat.usage,
        duration=max(0.0, chat.runtime.now() - chat.progress.started),
    )
