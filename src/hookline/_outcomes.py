"""What hooks may return, what a tool call comes to, and what a chat answers.

The *type* of a hook's return value says what happens; docs/hooks.md says which point takes
which. Nothing here knows the loop.
"""

from __future__ import annotations

from typing import Any, Literal, Self, TypeAlias

import msgspec

from hookline._errors import ToolArgumentsError
from hookline._messages import (
    NO_USAGE,
    Data,
    FinishReason,
    MediaPart,
    Message,
    ToolCall,
    Usage,
)

# ── what hooks may say ──────────────────────────────────────────────────────────────────────


class Stop(Data, frozen=True, tag_field="kind", tag="stop"):
    """End the chat gracefully; `text` is said to the user as an assistant message."""

    reason: str
    text: str | None = None


class Continue(Data, frozen=True, tag_field="kind", tag="continue"):
    """Go on at a natural end: `input` becomes the next user message."""

    input: str


class Ask(Data, frozen=True, tag_field="kind", tag="ask"):
    """This call needs somebody's approval; `expires` is in seconds from now."""

    prompt: str
    expires: float | None = None


class ToolResult(Data, frozen=True, tag_field="kind", tag="result"):
    """What a tool came to: `value` is JSON data, `media` goes to the model beside it."""

    value: Any = None
    media: tuple[MediaPart, ...] = ()
    truncated: bool = False


class ToolError(Data, frozen=True, tag_field="kind", tag="error", dict=True):
    """What a tool failed with, as the model reads it.

    `exception` is the exception behind it, where there is one in this process: it is never
    stored, sent or compared.
    """

    message: str
    type: str = "ToolError"
    issues: tuple[str, ...] = ()

    @property
    def exception(self) -> BaseException | None:
        found: BaseException | None = _attributes(self).get("exception")
        return found

    @classmethod
    def of(cls, exc: BaseException) -> ToolError:
        """The error as the model is told it: the exception's type name and text."""
        try:
            message = str(exc)
        except Exception:
            message = ""  # an exception whose __str__ fails is still an error
        issues = exc.issues if isinstance(exc, ToolArgumentsError) else ()
        name = type(exc).__name__
        _forget_our_frames(exc)
        error = cls(message or name, type=name, issues=issues)
        _attributes(error)["exception"] = exc
        return error

    def told(self) -> ToolError:
        """The error without its exception."""
        return ToolError(self.message, type=self.type, issues=self.issues)

    def replace(self, **changes: Any) -> Self:
        """A changed copy that still knows its exception."""
        copy = msgspec.structs.replace(self, **changes)
        _attributes(copy).update(_attributes(self))
        return copy


_OURS = __file__.rpartition("_outcomes")[0]


def _forget_our_frames(exc: BaseException) -> None:
    """Keep of the traceback what is the tool's.

    Our frames hold the chat, and the collector does not see the way back through a Struct.
    """
    kept = tb = exc.__traceback__
    while tb is not None:
        if tb.tb_frame.f_code.co_filename.startswith(_OURS):
            kept = tb.tb_next
        tb = tb.tb_next
    exc.__traceback__ = kept


def _attributes(error: ToolError) -> dict[str, Any]:
    attributes: Any = error.__dict__  # frozen are the fields alone
    return attributes  # type: ignore[no-any-return]


CallResult: TypeAlias = ToolResult | ToolError


# ── approvals ───────────────────────────────────────────────────────────────────────────────


class Approve(Data, frozen=True, kw_only=True, tag_field="kind", tag="approve"):
    """Run the call; `arguments` runs it with these instead (validated like the model's)."""

    arguments: dict[str, Any] | None = None


class Deny(Data, frozen=True, tag_field="kind", tag="deny"):
    """Do not run the call; the model is told why."""

    reason: str = "denied"


Decision: TypeAlias = Approve | Deny


class ApprovalRequest(Data, frozen=True, kw_only=True):
    """A call that waits: `call` is exactly what runs when it is approved.

    `digest` seals name, arguments and call id; `expires` is a time in seconds since the epoch.
    """

    id: str
    call: ToolCall
    prompts: tuple[str, ...]
    chat_id: str
    conversation_id: str | None
    iteration: int
    digest: str
    expires: float | None = None


# ── the answer of a chat ────────────────────────────────────────────────────────────────────


class Response(Data, frozen=True, kw_only=True):
    """What a chat came to. `stop_reason` is None exactly when it ended by itself."""

    chat_id: str
    text: str = ""
    reasoning: str = ""
    messages: tuple[Message, ...] = ()
    usage: Usage = NO_USAGE
    finish_reason: FinishReason | None = None
    stop_reason: str | None = None
    pending: tuple[ApprovalRequest, ...] = ()
    output: Any = None
    steps: int = 0


class ErrorInfo(Data, frozen=True, kw_only=True):
    """An exception as data."""

    type: str
    message: str

    @classmethod
    def of(cls, exc: BaseException) -> ErrorInfo:
        error = ToolError.of(exc)
        return cls(type=error.type, message=error.message)


Outcome: TypeAlias = Literal["done", "aborted", "error"]
