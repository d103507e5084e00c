"""What an agent is configured with, and what one of its chats was asked for. Data only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from hookline._base.messages import Data, UserMessage
from hookline._base.returns import ApprovalRequest, Approve, Decision, Deny
from hookline._base.run import Run
from hookline._base.runtime import LOCAL, Runtime
from hookline._hooks.bus import HookBus, View
from hookline._model.model import DEFAULT_SETTINGS, Model, Settings
from hookline._model.output import Form
from hookline._model.scopes import Scopes
from hookline._talk.conversation import Conversation

Release = Literal["live", "response"]
Approver = Callable[[ApprovalRequest, Run[Any]], Decision | Awaitable[Decision]]
SystemText = str | Callable[[Run[Any]], str | Awaitable[str | None] | None] | None


class Limits(Data, frozen=True, kw_only=True):
    """Bounds with finite defaults. Bytes of arguments and outputs are per call.

    `grace`: how long what was aborted may take to end, in seconds.
    """

    tool_calls: int = 64
    """Calls of one step; each further one is a tool error."""
    argument_bytes: int = 1_048_576
    """Longer arguments are a tool error."""
    output_bytes: int = 262_144
    """A longer result is cut and marked."""
    tool_timeout: float | None = 120.0
    """Seconds of a call, None for no limit; a tool's own `timeout=` comes first."""
    grace: float = 5.0


DEFAULT_LIMITS = Limits()


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What all chats of an agent have in common."""

    name: str
    model: Model
    bus: HookBus[Any]
    scopes: Scopes
    system: SystemText = None
    settings: Settings = DEFAULT_SETTINGS
    limits: Limits = DEFAULT_LIMITS
    max_steps: int = 20
    max_continuations: int = 3
    parallel_tools: bool = True
    runtime: Runtime = LOCAL


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What one chat was asked for."""

    chat_id: str
    view: View
    message: UserMessage | None
    conversation: Conversation | None = None
    deps: Any = None
    settings: Settings | None = None
    approver: Approver | None = None
    release: Release = "live"
    answers: dict[str, Approve | Deny] | None = None
    parent: Any = None  # the Chat whose tool call this chat is
    call_id: str | None = None
    state: dict[str, Any] | None = None
    output: Form | None = None
