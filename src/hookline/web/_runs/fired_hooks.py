"""What a run keeps besides events of its chat: the hooks that ran, and what they changed."""

from __future__ import annotations

import msgspec


class HookFired(msgspec.Struct, frozen=True, kw_only=True):
    """A hook ran: its hook point, its outcome, and its duration."""

    chat_id: str
    """The chat that the hook ran in."""
    point: str
    """The name of the hook point."""
    hook: str
    """The hook's name."""
    id: str | None = None
    """The id of the hook's definition, if it has one."""
    outcome: str
    """The outcome, such as "ok", "changed" or "stopped"; "held" if a hook at onDelta only held
    text back."""
    duration: float
    """The duration in milliseconds."""
    own: float | None = None
    """For a wrapper: the duration in milliseconds without the wrapped call."""
    times: int = 1
    """How many times the hook ran; the runs at onDelta in one step are one frame."""
    changes: tuple[FieldChange, ...] = ()
    """The changes that the hook made, if the page shows details."""


class FieldChange(msgspec.Struct, frozen=True, kw_only=True):
    """One value that a hook changed, with its text before and after."""

    name: str
    """The name of the value, such as "system"."""
    before: str
    """The text before; empty if the value was not set."""
    after: str
    """The text after; empty if the hook removed the value."""
