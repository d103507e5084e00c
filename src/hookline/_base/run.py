"""`Run`: what a hook or a tool may know and do of the chat it runs in.

It is a thin, read-only face of the chat; never the agent, never the loop. A hook gets it as
`ctx.run`, a tool by a parameter annotated `Run[Deps]`.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, get_origin

import msgspec
from typing_extensions import TypeVar

from hookline._base.messages import History, Usage

D = TypeVar("D", covariant=True, default=Any)
DepsT = TypeVar("DepsT", default=Any)  # another name: pyright mixes up equal ones


class ChatPort(Protocol):
    """What `Run` needs of a chat."""

    chat_id: str
    iteration: int
    state: dict[str, Any]

    @property
    def parent_chat_id(self) -> str | None: ...
    @property
    def deps(self) -> Any: ...
    @property
    def agent_name(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def conversation_id(self) -> str | None: ...
    @property
    def history(self) -> History: ...
    @property
    def usage(self) -> Usage: ...
    @property
    def meta(self) -> dict[str, Any]: ...
    def add_usage(self, usage: Usage) -> None: ...
    def abort(self, reason: str | None = None) -> bool: ...
    async def status(self, type: str, data: Any, call_id: str | None) -> None: ...
    async def ask(
        self, prompt: str, schema: dict[str, Any] | None, call_id: str | None
    ) -> dict[str, Any]: ...


class Run(msgspec.Struct, Generic[D], frozen=True, eq=False, weakref=True):
    """The chat, as its hooks and tools see it."""

    _chat: ChatPort
    _call_id: str | None = None

    @classmethod
    def chat_of(cls, run: Run[Any]) -> ChatPort:
        """The chat behind a run: for hookline itself."""
        return run._chat

    @property
    def chat_id(self) -> str:
        """The id of this chat, which no other one has."""
        return self._chat.chat_id

    @property
    def conversation_id(self) -> str | None:
        """The id of the conversation, None for a chat that keeps nothing."""
        return self._chat.conversation_id

    @property
    def agent(self) -> str:
        """The agent's name."""
        return self._chat.agent_name

    @property
    def parent_chat_id(self) -> str | None:
        """The chat whose tool call this chat is, for a sub-agent."""
        return self._chat.parent_chat_id

    @property
    def iteration(self) -> int:
        """The step, counted from 0."""
        return self._chat.iteration

    @property
    def attempt(self) -> int:
        """1, or more where a durable runtime runs an interrupted step again."""
        return self._chat.attempt

    @property
    def deps(self) -> D:
        """What the caller passed to this chat as `deps=`."""
        deps: D = self._chat.deps
        return deps

    @property
    def state(self) -> dict[str, Any]:
        """A dict of this chat for hooks and tools to share."""
        return self._chat.state

    @property
    def meta(self) -> dict[str, Any]:
        """The conversation's JSON data, written with the next commit; else of this chat alone."""
        return self._chat.meta

    @property
    def history(self) -> History:
        """The messages so far, read-only."""
        return self._chat.history

    @property
    def usage(self) -> Usage:
        """The tokens that this chat has used so far."""
        return self._chat.usage

    @property
    def call_id(self) -> str | None:
        """The tool call this belongs to, in a tool and at the tool points."""
        return self._call_id

    def abort(self, reason: str | None = None) -> bool:
        """Abort the chat: False when its outcome was decided before."""
        return self._chat.abort(reason)

    async def status(self, type: str, data: Any = None) -> None:
        """Report progress: to `onStatus`, the stream and the subscribers."""
        await self._chat.status(type, data, self._call_id)

    async def ask(self, prompt: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask the approver something from a running tool; returns the approved arguments.

        `schema` is a JSON schema of what `Approve(arguments=…)` must hold. Raises ToolDenied when
        the answer is no, and at once where the chat has no approver: a tool is never suspended.
        Raises UsageError outside of a tool call. The time limit of the tool stands still meanwhile.
        """
        return await self._chat.ask(prompt, schema, self._call_id)

    def __repr__(self) -> str:
        return f"<Run of chat {self.chat_id!r} of agent {self.agent!r}, step {self.iteration}>"


def is_run(annotation: object) -> bool:
    """Whether a parameter annotated so is given the Run."""
    return annotation is Run or get_origin(annotation) is Run
