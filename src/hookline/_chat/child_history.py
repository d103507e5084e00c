"""Sub-agents that wait for approvals: the chat of a sub-agent goes on in a later call of its tool.

Theory of operation. A call of a sub-agent may wait if its parent's calls may wait. The sub-agent's
chat then ends with a pending step, like any other chat, and its tool raises `ChildWaits`. This
passes the wrappers at aroundToolCall by and leaves the call waiting, with the sub-agent's messages
and its step. The requests of the sub-agent are requests of the parent, so this holds at any depth.
When answers come, the handler of the call runs again: the sub-agent goes on from its messages.

An answer for a sub-agent is used up when the first tool of the sub-agent begins after the answer.
Until then, the call waits again if the chat ends.
"""

from __future__ import annotations

from hookline._base.frozen import thaw
from hookline._base.returns import Answer
from hookline._chat.call import CallRun
from hookline._chat.config import Config
from hookline._chat.leading_tools import sub_agent_of
from hookline._chat.state import Chat
from hookline._conversations.state import ConversationState
from hookline._conversations.store import WaitingChild


class ChildWaits(BaseException):
    """Raised by the tool of a sub-agent whose chat waits for answers.

    No wrapper may take it for an error of the tool, so it is no Exception.
    """

    def __init__(self, agent: str, history: ConversationState) -> None:
        super().__init__(f"the chat of agent {agent!r} waits for answers")
        self.agent = agent
        self.history = history

    def child_of(self, run: CallRun) -> WaitingChild:
        """The waiting chat, as the call keeps it."""
        step = self.history.pending_step
        assert step is not None
        return WaitingChild(
            call=run.call,
            approved=run.approved == run.call,
            agent=self.agent,
            messages=self.history.messages,
            meta=self.history.meta,
            step=step,
        )


def own_history(
    parent: Chat, call_id: str | None, config: Config
) -> tuple[ConversationState | None, dict[str, Answer] | None]:
    """The conversation of a sub-agent's chat, if it may wait, and the answers it goes on with."""
    run: CallRun | None = parent.call_run(call_id)
    if run is None or sub_agent_of(run.tool) is not config:
        return None, None  # called by another tool, which would run again from its beginning
    if not (parent.can_wait or parent.runtime.answers):
        return None, None
    child = run.child
    if child is None or run.child_answers is None:
        return ConversationState(id="-"), None
    history = ConversationState(child.messages, id="-", meta=thaw(child.meta), pending=child.step)
    return history, run.child_answers


async def use_answers(chat: Chat, run: CallRun) -> None:
    """Use up the approval of the call, which begins now, and those that its sub-agent has got."""
    answers = chat.input.answers
    if run.request is not None:
        await chat.conversation.begin(run.request.id)
    parent: Chat | None = chat.input.parent
    while parent is not None and answers is not None:
        parent_run: CallRun | None = parent.call_run(chat.input.call_id)
        if parent_run is not None:
            parent_run.ran = True
            parent.progress.use(parent_run.id)
        for id in answers:
            await parent.conversation.begin(id)
        chat, answers, parent = parent, parent.input.answers, parent.input.parent
    chat.check()
