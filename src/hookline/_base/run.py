"""`Run`: the part of a chat that its hooks and tools can see and use.

A run is a thin, read-only view of the chat; it gives no access to the agent or the loop. A hook
gets it as `ctx.run`, a tool as a parameter annotated `Run[Deps]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Protocol, get_origin

import msgspec
from typing_extensions import TypeVar

from hookline._base.messages import History, Message, Timing, Usage
from hookline._base.returns import Compaction

D = TypeVar("D", covariant=True, default=Any)
DepsT = TypeVar("DepsT", default=Any)  # another name: pyright mixes up equal ones


class ChatPort(Protocol):
    """The interface of a chat that `Run` needs."""

    chat_id: str
    iteration: int
    state: dict[str, Any]

    @property
    def parent_chat_id(self) -> str | None: ...
    @property
    def parent(self) -> ChatPort | None: ...
    @property
    def path(self) -> tuple[str, ...]: ...
    @property
    def deps(self) -> Any: ...
    @property
    def agent_name(self) -> str: ...
    @property
    def model_name(self) -> str: ...
    @property
    def provider(self) -> str | None: ...
    @property
    def timing(self) -> Timing | None: ...
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
    @property
    def left_behind(self) -> bool: ...
    def add_usage(self, usage: Usage) -> None: ...
    def abort(self, reason: str | None = None) -> bool: ...
    async def status(self, type: str, data: Any, call_id: str | None) -> None: ...
    async def compact(
        self, hook: str, messages: Sequence[Message], compaction: Compaction
    ) -> Compaction | None: ...
    async def ask(
        self, prompt: str, schema: dict[str, Any] | None, call_id: str | None
    ) -> dict[str, Any]: ...


class Run(msgspec.Struct, Generic[D], frozen=True, eq=False, weakref=True):
    """The chat, as its hooks and tools see it."""

    _chat: ChatPort
    _call_id: str | None = None

    @classmethod
    def chat_of(cls, run: Run[Any]) -> ChatPort:
        """Return the internal chat object of a run; only for hookline itself."""
        return run._chat

    @property
    def chat_id(self) -> str:
        """The unique id of this chat."""
        return self._chat.chat_id

    @property
    def conversation_id(self) -> str | None:
        """The id of the conversation; None if the chat has no conversation."""
        return self._chat.conversation_id

    @property
    def agent(self) -> str:
        """The agent's name."""
        return self._chat.agent_name

    @property
    def model(self) -> str:
        """The name of the model: the agent's model, or the model that a hook chose."""
        return self._chat.model_name

    @property
    def provider(self) -> str | None:
        """The provider of the model, as reported by the model."""
        return self._chat.provider

    @property
    def timing(self) -> Timing | None:
        """The timing of the latest model call; None before the first chunk."""
        return self._chat.timing

    @property
    def parent_chat_id(self) -> str | None:
        """The id of the parent chat; None if this is not the chat of a sub-agent."""
        return self._chat.parent_chat_id

    @property
    def parent(self) -> Run[Any] | None:
        """The run of the parent chat; None if this is not the chat of a sub-agent."""
        parent = self._chat.parent
        return None if parent is None else Run(parent)

    @property
    def path(self) -> tuple[str, ...]:
        """The ids of the calls that lead from the root chat to this chat; empty in the root chat.

        The events of the chat have the same path.
        """
        return self._chat.path

    @property
    def iteration(self) -> int:
        """The step, counted from 0."""
        return self._chat.iteration

    @property
    def attempt(self) -> int:
        """How many times this step has begun; more than 1 if a durable runtime repeats the step."""
        return self._chat.attempt

    @property
    def deps(self) -> D:
        """The value that the caller passed as `deps=`."""
        deps: D = self._chat.deps
        return deps

    @property
    def state(self) -> dict[str, Any]:
        """A dict that the hooks and tools of this chat share."""
        return self._chat.state

    @property
    def meta(self) -> dict[str, Any]:
        """JSON data of the conversation, which is stored with the next commit.

        Without a conversation, the data belong to the chat.
        """
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
        """The id of the current tool call; None outside of tools and the tool points."""
        return self._call_id

    @property
    def call_key(self) -> str | None:
        """A key of the current tool call, the same each time the call runs; None outside calls.

        Send this key with the request that has an effect, such as an idempotency key of a payment.
        The key is unique. It is the same in every life of a durable chat, but a sub-agent that runs
        again makes new calls.
        """
        return None if self._call_id is None else f"{self.chat_id}.{self._call_id}"

    def abort(self, reason: str | None = None) -> bool:
        """Abort the chat; returns False if its outcome was already decided."""
        return self._chat.abort(reason)

    async def status(self, type: str, data: Any = None) -> None:
        """Report progress to `onStatus`, to the stream and to subscribers."""
        await self._chat.status(type, data, self._call_id)

    async def compact(
        self, hook: str, messages: Sequence[Message], compaction: Compaction
    ) -> Compaction | None:
        """Ask the hooks at `preCompact` before your hook leaves old messages out of a request.

        `hook` is the name of your hook, and `messages` are those of the request. Returns the
        compaction as the hooks have changed it; None if a hook refuses it.
        """
        return await self._chat.compact(hook, messages, compaction)

    async def ask(self, prompt: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask the approver a question from a running tool; returns the approved arguments.

        `schema` is a JSON schema for `Approve(arguments=…)`. While the tool waits, its time limit
        is paused. Raises ToolDenied if the answer is a Deny. If the chat has no approver, this
        method raises ToolDenied at once, because a running tool is never suspended. Raises
        UsageError outside a tool call.
        """
        return await self._chat.ask(prompt, schema, self._call_id)

    def __repr__(self) -> str:
        return f"<Run of chat {self.chat_id!r} of agent {self.agent!r}, step {self.iteration}>"


def is_run(annotation: object) -> bool:
    """Return whether a parameter with this annotation gets the Run."""
    return annotation is Run or get_origin(annotation) is Run
