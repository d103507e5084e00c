"""The return values of hooks, the results of tool calls, and the response of a chat.

The *type* of a hook's return value decides what happens; docs/hooks.md lists the types that each
point accepts. This module does not depend on the loop.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeAlias

import msgspec
from msgspec.structs import force_setattr
from typing_extensions import TypeVar

from hookline._base.errors import ToolArgumentsError
from hookline._base.frozen import READ_ONLY, freeze, own, own_tuple
from hookline._base.messages import (
    NO_USAGE,
    AssistantMessage,
    Data,
    FinishReason,
    MediaPart,
    Message,
    ModelPart,
    Source,
    ToolCall,
    ToolMessage,
    Usage,
    UserPart,
)

When: TypeAlias = Literal["next", "idle"]
"""When a sent message is committed: before the next request, or when the chat would end."""

# ── return values of hooks ──────────────────────────────────────────────────────────────────


class Stop(Data, frozen=True, tag_field="kind", tag="stop"):
    """End the chat gracefully; `text` is sent to the user as an assistant message."""

    reason: str
    """Becomes `response.stop_reason`."""
    text: str | None = None
    """The text that is sent to the user as an assistant message, if any."""

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(self, *, reason: str = ..., text: str | None = ...) -> Self: ...


class Continue(Data, frozen=True, tag_field="kind", tag="continue"):
    """Continue a chat that would have ended: `input` becomes the next user message."""

    input: str
    """The next user message."""

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(self, *, input: str = ...) -> Self: ...


class Guide(Data, frozen=True, tag_field="kind", tag="guide"):
    """Withdraw the model's answer, tell the model why, and let it answer again in another step."""

    reason: str
    """What the model must do differently; it becomes a user message."""

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(self, *, reason: str = ...) -> Self: ...


class Hold(Data, frozen=True, tag_field="kind", tag="hold"):
    """Keep a sent message in the queue; the hooks are asked again before the next request."""


class Compaction(Data, frozen=True, tag_field="kind", tag="compaction"):
    """Leave old messages out of requests; the stored history stays complete."""

    keep: int
    """The number of the last messages that stay, in whole groups: a call stays with its results."""
    text: str | None = None
    """The text that replaces the other messages; None: the hook that shortens chooses it."""

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(self, *, keep: int = ..., text: str | None = ...) -> Self: ...


class Ask(Data, frozen=True, tag_field="kind", tag="ask"):
    """Require an approval for this call; `expires` is in seconds from now."""

    prompt: str
    """The text that is shown to the person who answers."""
    expires: float | None = None
    """The seconds from now until the question expires; None if it never expires.

    If the approver has not answered when the question expires, the call is denied. An answer to a
    stored question that has expired raises ApprovalError.
    """
    details: dict[str, Any] | None = None
    """JSON data about the question, such as a diff, for everyone who shows it; sealed with it."""

    def __post_init__(self) -> None:
        own(self, "details")

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            prompt: str = ...,
            expires: float | None = ...,
            details: dict[str, Any] | None = ...,
        ) -> Self: ...


class ToolResult(Data, frozen=True, tag_field="kind", tag="result"):
    """The result of a tool: `value` is JSON data; `media` is sent to the model with the value."""

    value: Any = None
    """JSON data."""
    media: tuple[MediaPart, ...] = ()
    """Pictures and files that are sent to the model with the value."""
    truncated: bool = False
    """True if the value was cut to `Limits.output_bytes`."""

    def __post_init__(self) -> None:
        if self.value.__class__ not in READ_ONLY:
            own(self, "value")
        if self.media.__class__ is not tuple:
            own_tuple(self, "media")

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self, *, value: Any = ..., media: tuple[MediaPart, ...] = ..., truncated: bool = ...
        ) -> Self: ...


class ToolFailure(Data, frozen=True, tag_field="kind", tag="error", dict=True):
    """The failure of a tool call, as sent to the model.

    `exception` is the exception that caused the failure, if it was raised in this process. The
    exception is never stored, sent or compared.
    """

    message: str
    """The description of the failure for the model."""
    type: str = "ToolFailure"
    """The name of the error, such as "Denied"."""
    issues: tuple[str, ...] = ()
    """The problems with the arguments, one text for each problem."""

    def __post_init__(self) -> None:
        own_tuple(self, "issues")

    @property
    def exception(self) -> BaseException | None:
        """The exception that was raised; None outside of the process that raised it."""
        exception: BaseException | None = _attributes(self).get("exception")
        return exception

    @classmethod
    def of(cls, exc: BaseException) -> ToolFailure:
        """Make the failure that the model sees: the exception's type name and text."""
        issues = exc.issues if isinstance(exc, ToolArgumentsError) else ()
        _forget_our_frames(exc)
        error = cls(_text_of(exc), type=type(exc).__name__, issues=_TRACKABLE)
        force_setattr(error, "issues", issues)
        _attributes(error)["exception"] = exc
        return error

    def told(self) -> ToolFailure:
        """Return the failure without its exception."""
        return ToolFailure(self.message, type=self.type, issues=self.issues)

    if not TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self:
            """Return a changed copy with the same exception."""
            copy = msgspec.structs.replace(self, **{**changes, "issues": _TRACKABLE})
            force_setattr(copy, "issues", changes.get("issues", self.issues))
            _attributes(copy).update(_attributes(self))
            return copy

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self, *, message: str = ..., type: str = ..., issues: tuple[str, ...] = ...
        ) -> Self: ...


_OURS = __file__.rpartition("_base")[0]

# The garbage collector tracks a Struct if one of its fields was trackable when the Struct was
# created. The exception of a failure is not in a field, but its frames refer to many objects that
# may refer back to it.
_TRACKABLE: Any = [()]


def _text_of(exc: BaseException) -> str:
    """The exception's text; its type's name if it has none."""
    try:
        text = str(exc)
    except Exception:
        text = ""  # an exception whose __str__ fails is still an error
    return text or type(exc).__name__


def _forget_our_frames(exc: BaseException) -> None:
    """Keep only the tool's own frames in the traceback.

    Our frames refer to the chat, and the collector cannot follow a cycle through a Struct.
    """
    visible = tb = exc.__traceback__
    while tb is not None:
        if tb.tb_frame.f_code.co_filename.startswith(_OURS):
            visible = tb.tb_next
        tb = tb.tb_next
    exc.__traceback__ = visible


def forget_our_locals(exc: BaseException) -> None:
    """Clear the locals of our frames below the tool's, once the chat has ended.

    From Python 3.12 on, the frame of a coroutine that raised keeps a reference to its awaiter.
    An exception that is kept would therefore keep the chat alive, in a reference cycle.
    """
    frame = exc.__traceback__.tb_frame.f_back if exc.__traceback__ is not None else None
    while frame is not None:
        if frame.f_code.co_filename.startswith(_OURS):
            with suppress(RuntimeError):  # the frame is still running
                frame.clear()
        frame = frame.f_back


def _attributes(error: ToolFailure) -> dict[str, Any]:
    attributes: Any = error.__dict__  # only the fields are frozen
    return attributes  # type: ignore[no-any-return]


CallResult: TypeAlias = ToolResult | ToolFailure
"""The result of a tool call, or its failure."""


class MessageChanges(Data, frozen=True, kw_only=True, tag_field="kind", tag="changes"):
    """A change to a message in a history: a new text, or new parts.

    The message's role, id and calls cannot change. A tool message has only text.
    """

    text: str | None = None
    """The text that replaces all of the message's text."""
    parts: tuple[UserPart | ModelPart, ...] | None = None
    """The parts that replace all of the message's parts."""

    def __post_init__(self) -> None:
        own_tuple(self, "parts")

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self, *, text: str | None = ..., parts: tuple[UserPart | ModelPart, ...] | None = ...
        ) -> Self: ...


# ── approvals ───────────────────────────────────────────────────────────────────────────────


class Rule(Data, frozen=True, omit_defaults=True):
    """A rule that approves calls like the one that a person has approved: `Rule("pay")`.

    It holds for calls of the same tool by the same agent with exactly these arguments. If the name,
    the description or the parameters of the tool change, the rule no longer holds.
    """

    tool: str
    """The name of the tool."""
    arguments: dict[str, Any] | None = None
    """All arguments of the calls, with the defaults of those that a call leaves out. None, when the
    rule is made, stands for the arguments of the approved call."""
    until: float | None = None
    """When the rule ends, in seconds since the epoch; None if it does not end."""
    scope: Literal["chat", "conversation", "always"] = "conversation"
    """Where the rule holds: in the chat and the chats that resume it, in the conversation, or in
    all conversations of the agent's store, whoever uses them."""
    id: str = ""
    """The id of the rule, by which it is revoked; set when the rule is made."""
    agent: str = ""
    """The name of the agent; set when the rule is made."""
    tool_digest: str = ""
    """A digest of the tool as the person saw it; set when the rule is made."""
    by: str | None = None
    """Who made the rule: `by` of the approval."""
    made_at: float | None = None
    """When the rule was made, in seconds since the epoch."""

    def __post_init__(self) -> None:
        own(self, "arguments")

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            tool: str = ...,
            arguments: dict[str, Any] | None = ...,
            until: float | None = ...,
            scope: Literal["chat", "conversation", "always"] = ...,
            id: str = ...,
            agent: str = ...,
            tool_digest: str = ...,
            by: str | None = ...,
            made_at: float | None = ...,
        ) -> Self: ...


class Approve(Data, frozen=True, kw_only=True, tag_field="kind", tag="approve"):
    """Run the call. `arguments` replaces the model's arguments and is validated in the same way."""

    arguments: dict[str, Any] | None = None
    """The arguments for the call; None keeps the model's arguments."""
    by: str | None = None
    """The person or program that decided, such as a user's id."""
    note: str | None = None
    """A remark for the records; the model does not see it."""
    remember: Rule | None = None
    """A rule by which later calls like this one are approved; None for this call alone."""

    def __post_init__(self) -> None:
        own(self, "arguments")

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            arguments: dict[str, Any] | None = ...,
            by: str | None = ...,
            note: str | None = ...,
            remember: Rule | None = ...,
        ) -> Self: ...


class Deny(Data, frozen=True, tag_field="kind", tag="deny"):
    """Do not run the call; the model sees the reason."""

    reason: str = "denied"
    """The reason that the model sees."""
    by: str | None = None
    """The person or program that decided, such as a user's id."""

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(self, *, reason: str = ..., by: str | None = ...) -> Self: ...


Decision: TypeAlias = Approve | Deny
"""A person's decision on a request for approval."""
Answer: TypeAlias = Decision | CallResult
"""An answer to a waiting call: a decision, or the result of a client-side tool."""


class ApprovalRequest(Data, frozen=True, kw_only=True):
    """A call that waits for an approval. `call` is exactly the call that runs after an approval.

    `digest` seals the call, the details, and the tool as it was. `expires` is in seconds since the
    epoch.
    """

    id: str
    """The id of the request; use it as a key in `resume()`. The id cannot be guessed."""
    call: ToolCall
    """The call, exactly as it runs after an approval."""
    prompts: tuple[str, ...]
    """The prompts of the hooks that asked."""
    chat_id: str
    """The id of the chat that asked."""
    path: tuple[str, ...] = ()
    """The ids of the calls that lead from the root chat to the chat that asked; empty if the root
    chat asked itself."""
    conversation_id: str | None = None
    """The id of the conversation in which the call waits, which is that of the root chat; None if
    the root chat has no conversation."""
    iteration: int
    """The step, counted from 0."""
    digest: str
    """A digest of the call's name, arguments and id, of `details`, and of `tool_digest`."""
    tool_digest: str = ""
    """A digest of the tool's name, description and parameters; empty in older requests."""
    asked_at: float | None = None
    """When the approval was requested, in seconds since the epoch."""
    details: tuple[dict[str, Any] | None, ...] = ()
    """The details of the questions, in the order of `prompts`; empty if no question has details."""
    expires: float | None = None
    """When the request expires, in seconds since the epoch; None if it never expires."""
    schema: dict[str, Any] | None = None
    """The JSON schema for `Approve(arguments=…)` if a running tool asks; None if a hook asks."""

    def __post_init__(self) -> None:
        own(self, "schema")
        own_tuple(self, "prompts")
        own_tuple(self, "path")
        if self.details:
            force_setattr(self, "details", tuple([freeze(detail) for detail in self.details]))

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            id: str = ...,
            call: ToolCall = ...,
            prompts: tuple[str, ...] = ...,
            chat_id: str = ...,
            path: tuple[str, ...] = ...,
            conversation_id: str | None = ...,
            iteration: int = ...,
            digest: str = ...,
            tool_digest: str = ...,
            asked_at: float | None = ...,
            details: tuple[dict[str, Any] | None, ...] = ...,
            expires: float | None = ...,
            schema: dict[str, Any] | None = ...,
        ) -> Self: ...


# ── the response of a chat ──────────────────────────────────────────────────────────────────


OutT = TypeVar("OutT", default=Any)


class Response(Data, Generic[OutT], frozen=True, kw_only=True):
    """The response of a chat. `stop_reason` is None only if the chat ended normally.

    `output` is the answer as a value of the chat's `output=` type. `output` is None if the chat was
    stopped before it had an answer of that type.
    """

    chat_id: str
    """The chat's id."""
    text: str = ""
    """The last answer's text."""
    reasoning: str = ""
    """The last answer's reasoning."""
    messages: tuple[Message, ...] = ()
    """The messages of this chat, starting with the user's message."""
    usage: Usage = NO_USAGE
    """The tokens of all model calls of the chat."""
    finish_reason: FinishReason | None = None
    """Why the model ended its last answer."""
    stop_reason: str | None = None
    """None if the chat ended normally; else "approval", "client_tool" or the reason of a Stop."""
    pending: tuple[ApprovalRequest, ...] = ()
    """The calls that wait for an approval."""
    client_calls: tuple[ToolCall, ...] = ()
    """The calls that a client must run: `resume()` takes `{call.id: ToolResult(…)}`."""
    output: OutT | None = None
    """The answer as a value of the `output=` type; None if the chat has no `output=` or was
    stopped."""
    steps: int = 0
    """The number of model calls."""

    @property
    def tool_results(self) -> tuple[ToolMessage, ...]:
        """The results of this chat's tool calls.

        Each result has the tool's name and the outcome.
        """
        return tuple([message for message in self.messages if isinstance(message, ToolMessage)])

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources that a provider's own tools found for this chat's answers."""
        answers = [message for message in self.messages if isinstance(message, AssistantMessage)]
        return tuple([source for message in answers for source in message.sources])

    @property
    def files(self) -> tuple[MediaPart, ...]:
        """The pictures and files that the model or the provider's own tools made in this chat."""
        answers = [message for message in self.messages if isinstance(message, AssistantMessage)]
        return tuple([file for message in answers for file in message.files])

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            chat_id: str = ...,
            text: str = ...,
            reasoning: str = ...,
            messages: tuple[Message, ...] = ...,
            usage: Usage = ...,
            finish_reason: FinishReason | None = ...,
            stop_reason: str | None = ...,
            pending: tuple[ApprovalRequest, ...] = ...,
            client_calls: tuple[ToolCall, ...] = ...,
            output: OutT | None = ...,
            steps: int = ...,
        ) -> Self: ...


_ERROR_TEXT = 8_192  # characters: keeps an event small, whatever the exception


class ErrorInfo(Data, frozen=True, kw_only=True):
    """An exception as JSON data."""

    type: str
    """The name of the exception's class."""
    message: str
    """The exception's text, truncated with a note if it is longer than 8,192 characters."""
    retryable: bool = False
    """Whether the same request may succeed later."""
    retry_after: float | None = None
    """The seconds to wait before that; None if unknown."""

    @classmethod
    def of(cls, exc: BaseException) -> ErrorInfo:
        """Make an ErrorInfo from the exception's type name and text, and from whether and when a
        ModelError can be tried again; other data is left out.
        """
        text, limit = _text_of(exc), _ERROR_TEXT
        if len(text) > limit:
            text = f"{text[:limit]}\n[truncated: the first {limit} of {len(text)} characters]"
        retryable = getattr(exc, "retryable", False) is True
        return cls(
            type=type(exc).__name__,
            message=text,
            retryable=retryable,
            retry_after=getattr(exc, "retry_after", None) if retryable else None,
        )

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            type: str = ...,
            message: str = ...,
            retryable: bool = ...,
            retry_after: float | None = ...,
        ) -> Self: ...


Outcome: TypeAlias = Literal["done", "aborted", "error"]
"""How a chat ended."""
