"""The answers for sub-agents that wait: taken, denied or awaited by the call of the sub-agent.

`child_history.py` has the theory of operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from hookline._base.returns import Answer, ApprovalRequest, Deny, ToolFailure
from hookline._chat.approval import ask_later
from hookline._chat.asking import tell
from hookline._chat.call import CallRun
from hookline._chat.leading_tools import sub_agent_of
from hookline._chat.run_tool import admit
from hookline._chat.state import Chat
from hookline._record.runtime import CHILD_ANSWER
from hookline._tools.tool import AnyTool


def take_answers(chat: Chat, run: CallRun, answers: Mapping[str, Answer]) -> None:
    """Let a call of a sub-agent go on if there are answers for it."""
    child = run.child
    assert child is not None
    own = {id: answers[id] for id in child.step.ids if id in answers}
    if not own:
        return
    error = admit(chat, run)
    if error is None and not _leads_to(run.tool, child.agent):
        error = ToolFailure(_OTHER_AGENT.format(run.call.name), type="Denied")
    if error is not None:
        run.refuse(error, "denied" if error.type == "Denied" else "error")
        return
    run.child_answers = own
    run.let_run()


_OTHER_AGENT: Final = (
    "not finished: {!r} is no longer the agent that asked for the approval; call the tool again"
)


def _leads_to(tool: AnyTool | None, agent: str) -> bool:
    config = sub_agent_of(tool)
    return config is not None and config.name == agent


async def deny_child(chat: Chat, run: CallRun, decision: Deny) -> None:
    """Deny everything that a sub-agent waits for, without going on with its chat."""
    assert run.child is not None
    for request in run.child.step.waiting:
        await tell(chat, request, decision)
    run.refuse(ToolFailure(decision.reason, type="Denied"), "denied")


async def await_answers(chat: Chat, iteration: int, run: CallRun, round: int) -> None:
    """Wait for all answers for a sub-agent, in a runtime that can wait."""
    child = run.child
    assert child is not None
    run.child_answers = answers = dict[str, Answer]()

    async def wait(request: ApprovalRequest) -> None:
        key = (CHILD_ANSWER, iteration, run.id, round, request.id)
        answers[request.id] = await ask_later(chat, iteration, key, request)

    await chat.runtime.gather([partial(wait, request) for request in child.step.requests])
    chat.check()
