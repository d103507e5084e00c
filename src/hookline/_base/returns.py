"""What hooks may return, what a tool call comes to, and what a chat answers.

The *type* of a hook's return value says what happens; docs/hooks.md says which point takes
which. Nothing here knows the loop.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Generic, Literal, Self, TypeAlias

import msgspec
from msgspec.structs import force_setattr
from typing_extensions import TypeVar

from hookline._base.errors import ToolArgumentsError
from hookline._base.frozen import own, own_tuples
from hookline._base.messages import (
    NO_USAGE,
    Data,
    FinishReason,
    MediaPart,
    Message,
    ModelPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserPart,
)

# ── what hooks may say ──────────────────────────────────────────────────────────────────────


class Stop(Data, frozen=True, tag_field="kind", tag="stop"):
    """End the chat gracefully; `text` is said to the user as an assistant message."""

    reason: str
    """Becomes `response.stop_reason`."""
    text: str | None = None
    """Said to the user as an assistant message, if there is one."""


class Continue(Data, frozen=True, tag_field="kind", tag="continue"):
    """Go on at a natural end: `input` becomes the next user message."""

    input: str
    """The next user message."""


class Ask(Data, frozen=True, tag_field="kind", tag="ask"):
    """This call needs somebody's approval; `expires` is in seconds from now."""

    prompt: str
    """What whoever answers is shown."""
    expires: float | None = None
    """Seconds from now until the question is denied; None for never."""


class ToolResult(Data, frozen=True, tag_field="kind", tag="result"):
    """What a tool came to: `value` is JSON data, `media` goes to the model beside it."""

    value: Any = None
    """JSON data."""
    media: tuple[MediaPart, ...] = ()
    """Pictures and files that go to the model beside the value."""
    truncated: bool = False
    """The value was cut to `Limits.output_bytes`."""

    def __post_init__(self) -> None:
        own(self, "value")
        own_tuples(self, "media")


class ToolFailure(Data, frozen=True, tag_field="kind", tag="error", dict=True):
    """What a tool failed with, as the model reads it.

    `exception` is the exception behind it, where there is one in this process: it is never
    stored, sent or compared.
    """

    message: str
    """What went wrong, in words for the model."""
    type: str = "ToolFailure"
    """The name of an error, such as "Denied"."""
    issues: tuple[str, ...] = ()
    """Each thing that is wrong with the arguments."""

    @property
    def exception(self) -> BaseException | None:
        """What was raised, while the process that has seen it lives."""
        found: BaseException | None = _attributes(self).get("exception")
        return found

    @classmethod
    def of(cls, exc: BaseException) -> ToolFailure:
        """The error as the model is told it: the exception's type name and text."""
        try:
            message = str(exc)
        except Exception:
            message = ""  # an exception whose __str__ fails is still an error
        issues = exc.issues if isinstance(exc, ToolArgumentsError) else ()
        name = type(exc).__name__
        _forget_our_frames(exc)
        error = cls(message or name, type=name, issues=_SEEN)
        force_setattr(error, "issues", issues)
        _attributes(error)["exception"] = exc
        return error

    def told(self) -> ToolFailure:
        """The error without its exception."""
        return ToolFailure(self.message, type=self.type, issues=self.issues)

    def replace(self, **changes: Any) -> Self:
        """A changed copy that still knows its exception."""
        copy = msgspec.structs.replace(self, **{**changes, "issues": _SEEN})
        force_setattr(copy, "issues", changes.get("issues", self.issues))
        _attributes(copy).update(_attributes(self))
        return copy


_OURS = __file__.rpartition("_base")[0]

# The collector looks at a Struct when what it looks at stood in a field as the Struct was made. An
# error's exception stands in no field, and leads by its frames to much that may lead back.
_SEEN: Any = [()]


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


def forget_our_locals(exc: BaseException) -> None:
    """Empty our frames below the tool's, of a chat that is over.

    From Python 3.12 on the frame of a coroutine that raised knows for ever who awaited it, and so
    an exception that is kept would keep the chat, and lead back to itself.
    """
    frame = exc.__traceback__.tb_frame.f_back if exc.__traceback__ is not None else None
    while frame is not None:
        if frame.f_code.co_filename.startswith(_OURS):
            with suppress(RuntimeError):  # it still runs
                frame.clear()
        frame = frame.f_back


def _attributes(error: ToolFailure) -> dict[str, Any]:
    attributes: Any = error.__dict__  # frozen are the fields alone
    return attributes  # type: ignore[no-any-return]


CallResult: TypeAlias = ToolResult | ToolFailure


class MessageChanges(Data, frozen=True, kw_only=True, tag_field="kind", tag="changes"):
    """What is changed in a message that stands in history: its text, or all its parts.

    Role, id and calls stay. A tool's message has text alone.
    """

    text: str | None = None
    """Stands in place of all its text."""
    parts: tuple[UserPart | ModelPart, ...] | None = None
    """Stand in place of all its parts."""

    def __post_init__(self) -> None:
        own_tuples(self, "parts")


# ── approvals ───────────────────────────────────────────────────────────────────────────────


class Approve(Data, frozen=True, kw_only=True, tag_field="kind", tag="approve"):
    """Run the call; `arguments` runs it with these instead (validated like the model's)."""

    arguments: dict[str, Any] | None = None
    """Run the call with these in place of the ones that were asked about."""

    def __post_init__(self) -> None:
        own(self, "arguments")


class Deny(Data, frozen=True, tag_field="kind", tag="deny"):
    """Do not run the call; the model is told why."""

    reason: str = "denied"
    """What the model is told."""


Decision: TypeAlias = Approve | Deny


class ApprovalRequest(Data, frozen=True, kw_only=True):
    """A call that waits: `call` is exactly what runs when it is approved.

    `digest` seals name, arguments and call id; `expires` is a time in seconds since the epoch.
    """

    id: str
    """What `resume()` names; nobody can guess it."""
    call: ToolCall
    """Exactly what runs when it is approved."""
    prompts: tuple[str, ...]
    """What the hooks that asked want to know."""
    chat_id: str
    """The chat that asked."""
    conversation_id: str | None
    """Where it waits, None where an approver is asked at once."""
    iteration: int
    """The step, counted from 0."""
    digest: str
    """The seal of name, arguments and call id."""
    expires: float | None = None
    """A time in seconds since the epoch; None for never."""
    schema: dict[str, Any] | None = None
    """The JSON schema of what `Approve(arguments=…)` must hold, where a running tool asks."""

    def __post_init__(self) -> None:
        own(self, "schema")
        own_tuples(self, "prompts")


# ── the answer of a chat ────────────────────────────────────────────────────────────────────


OutT = TypeVar("OutT", default=Any)


class Response(Data, Generic[OutT], frozen=True, kw_only=True):
    """What a chat came to. `stop_reason` is None exactly when it ended by itself.

    `output` is the answer as a value of the type that the chat was given as `output=`; it is None
    where the chat was stopped before there was one.
    """

    chat_id: str
    """The chat's id."""
    text: str = ""
    """The last answer's text."""
    reasoning: str = ""
    """The last answer's reasoning."""
    messages: tuple[Message, ...] = ()
    """The messages of this chat, the user's first."""
    usage: Usage = NO_USAGE
    """What all its model calls cost."""
    finish_reason: FinishReason | None = None
    """Why the model ended."""
    stop_reason: str | None = None
    """None exactly when the chat ended by itself; else the reason of a Stop, or "approval"."""
    pending: tuple[ApprovalRequest, ...] = ()
    """The calls that wait for an approval."""
    output: OutT | None = None
    """The answer as a value of `output=`; None without it, and where the chat was stopped."""
    steps: int = 0
    """How many model calls were made."""

    @property
    def tool_results(self) -> tuple[ToolMessage, ...]:
        """The results of this chat's tool calls, each with its tool's name and outcome."""
        return tuple([each for each in self.messages if isinstance(each, ToolMessage)])


_ERROR_TEXT = 8_192  # characters: an event stays small, whatever was raised


class ErrorInfo(Data, frozen=True, kw_only=True):
    """An exception as data."""

    type: str
    """The name of the exception's class."""
    message: str
    """Its text, cut and marked where it is longer than 8,192 characters."""

    @classmethod
    def of(cls, exc: BaseException) -> ErrorInfo:
        """The exception's type name and text; what it holds besides is left out."""
        error = ToolFailure.of(exc)
        text, limit = error.message, _ERROR_TEXT
        if len(text) > limit:
            text = f"{text[:limit]}\n[truncated: the first {limit} of {len(text)} characters]"
        return cls(type=error.type, message=text)


Outcome: TypeAlias = Literal["done", "aborted", "error"]
