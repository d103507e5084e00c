"""The configuration of an agent, and the input of one chat. Data only."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from hookline._base.errors import UsageError
from hookline._base.lists import as_tuple
from hookline._base.messages import Data, UserMessage
from hookline._base.numbers import check_number
from hookline._base.returns import Answer, ApprovalRequest, Decision
from hookline._base.run import Run
from hookline._conversations.conversation import Conversation
from hookline._conversations.state import ConversationState
from hookline._conversations.store import Store
from hookline._hooks.bus import View
from hookline._hooks.declared import HooksArgument
from hookline._model.model import DEFAULT_SETTINGS, Model, Settings
from hookline._model.output import Form, form_of
from hookline._record.runtime import LOCAL, Runtime
from hookline._tools.scopes import ChatScopes, Scope, Scopes
from hookline._tools.tool import ToolLike

Release = Literal["live", "response"]
"""When text is shown: as it arrives, or after the hooks at onResponse."""
Approver = Callable[[ApprovalRequest, Run[Any]], Decision | Awaitable[Decision]]
"""A function, sync or async, that decides on a request for approval."""
OutputValidator = Callable[..., Any]
"""A function, sync or async, that checks an answer and raises ValueError if the answer is wrong."""
SystemText = str | Callable[[Run[Any]], str | Awaitable[str | None] | None] | None
"""The system text, or a sync or async function that takes the run and returns the text."""


_UNSET: Any = msgspec.UNSET
_UNLIMITED = ("request_seconds", "tool_timeout")  # fields that may be None
_SECONDS = (*_UNLIMITED, "grace")


class Limits(Data, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Limits of a chat. The `limits=` of a chat change only the fields that you pass.

    The other fields have the agent's values; if the agent does not set a field, the default
    applies. All defaults are finite. The byte limits of arguments and outputs apply to each call.
    Raises UsageError if a value is not a number, if it is negative, or if `steps` is below 1.
    """

    steps: int = _UNSET
    """The maximum number of model calls of a chat (20); a further call raises MaxStepsError."""
    continuations: int = _UNSET
    """How many times hooks at preStop may continue a chat (3)."""
    tool_calls: int = _UNSET
    """The maximum number of tool calls of one step (64); each further call is a tool error."""
    argument_bytes: int = _UNSET
    """The maximum size of a call's arguments (1 MiB); longer arguments are a tool error."""
    output_bytes: int = _UNSET
    """The maximum size of a tool's result (256 KiB); a longer result is truncated and marked."""
    answer_bytes: int = _UNSET
    """The maximum size of an answer: text, reasoning and arguments (8 MiB); a longer answer is a
    ModelError."""
    request_seconds: float | None = _UNSET
    """The seconds that a model call may take (600), each attempt of a hook on its own; None for no
    limit. A longer call is an IdleTimeoutError."""
    tool_timeout: float | None = _UNSET
    """The seconds that a tool call may take (120); None for no limit. A tool's `timeout=` overrides
    this field."""
    grace: float = _UNSET
    """The seconds that an aborted chat may take to end (5)."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is _UNSET or (value is None and name in _UNLIMITED):
                continue
            least = 1 if name == "steps" else 0
            check_number(f"Limits.{name}", value, least=least, whole=name not in _SECONDS)

    def over(self, other: Limits) -> Limits:
        """Return a copy in which missing fields have the values of `other`."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return other.replace(
            **{name: value for name, value in values.items() if value is not _UNSET}
        )

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            steps: int = ...,
            continuations: int = ...,
            tool_calls: int = ...,
            argument_bytes: int = ...,
            output_bytes: int = ...,
            answer_bytes: int = ...,
            request_seconds: float | None = ...,
            tool_timeout: float | None = ...,
            grace: float = ...,
        ) -> Self: ...


DEFAULT_LIMITS = Limits(
    steps=20,
    continuations=3,
    tool_calls=64,
    argument_bytes=1_048_576,
    output_bytes=262_144,
    answer_bytes=8_388_608,
    request_seconds=600.0,
    tool_timeout=120.0,
    grace=5.0,
)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration that all chats of an agent share."""

    name: str
    model: Model
    scopes: Scopes
    system: SystemText = None
    settings: Settings = DEFAULT_SETTINGS
    limits: Limits = DEFAULT_LIMITS
    parallel_tools: bool = True
    runtime: Runtime = LOCAL
    output: Form | None = None
    output_retries: int = 1
    output_validators: tuple[OutputValidator, ...] = ()
    store: Store | None = None  # has the rules of remembered approvals


_CHAT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_chat_id(chat_id: str) -> None:
    """Refuse an id that does not fit into stores, logs and URLs."""
    if not _CHAT_ID.fullmatch(chat_id):
        raise UsageError(
            f"chat_id={chat_id!r} must be 1 to 64 characters from A-Z, a-z, 0-9, '_' and '-'"
        )


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The keywords of a chat; `chat` and `resume` document them."""

    conversation: Conversation | str | None = None
    deps: Any = None
    state: dict[str, Any] | None = None
    hooks: HooksArgument | None = None
    only_hooks: HooksArgument | None = None
    model: Model | str | None = None
    system: SystemText = None
    tools: Iterable[ToolLike] | None = None
    settings: Settings | None = None
    limits: Limits | None = None
    approver: Approver | msgspec.UnsetType | None = msgspec.UNSET
    output: object = None
    output_retries: int | None = None
    output_validators: Iterable[OutputValidator] | None = None
    release: Release = "live"
    runtime: Runtime | None = None
    chat_id: str | None = None


class ChatInput(msgspec.Struct, frozen=True, kw_only=True):
    """The input of one chat."""

    chat_id: str
    view: View
    message: UserMessage | None
    conversation: Conversation | None = None
    deps: Any = None
    settings: Settings | None = None
    approver: Approver | None = None
    release: Release = "live"
    answers: dict[str, Answer] | None = None
    parent: Any = None  # the Chat whose tool call runs this chat
    own_history: ConversationState | None = None  # of a sub-agent that may wait for answers
    call_id: str | None = None
    state: dict[str, Any] | None = None
    has_chat_id: bool = False  # the caller has passed chat_id=
    guards: tuple[str, ...] = ()  # required hooks among the chat's own, by id or name
    only_hooks: bool = False  # the caller has passed only_hooks=
    own_system: bool = False  # the caller has passed system=
    own_tools: bool = False  # the caller has passed tools=
    options: ChatOptions | None = None  # its keywords, if they change a speaker's configuration
    model: Model | None = None  # the model that they name


def check_runtime(runtime: Any) -> Runtime:
    """Refuse an object that is no runtime, such as the class of one."""
    if isinstance(runtime, type) or not isinstance(runtime, Runtime):
        raise UsageError(
            f"runtime={runtime!r} is not a runtime: it lacks methods of hookline.runtimes.Runtime; "
            "pass an object such as Durable()"
        )
    return runtime


def check_retries(count: int) -> int:
    """Refuse a negative number of corrections."""
    if count < 0:
        raise UsageError(f"output_retries={count!r} must be at least 0")
    return count


def for_chat(
    config: Config, options: ChatOptions, model: Model | None, *, speaks_later: bool = False
) -> Config:
    """The configuration of one chat: the agent's, overridden by the chat's keywords.

    `speaks_later`: a handoff has led to this agent. Its tools do not stop the running chat; the
    chat's own tools hide those of the same name.
    """
    changes: dict[str, Any] = {}
    if model is not None:
        changes["model"] = model
    if options.system is not None:
        changes["system"] = options.system
    if options.settings is not None:
        changes["settings"] = options.settings.over(config.settings)
    if options.limits is not None:
        changes["limits"] = options.limits.over(config.limits)
    if options.runtime is not None:
        changes["runtime"] = check_runtime(options.runtime)
    if options.output is not None:
        changes["output"] = form_of(options.output)
        changes["output_validators"] = ()  # the agent's validators are for its own type
    if options.output_retries is not None:
        changes["output_retries"] = check_retries(options.output_retries)
    if options.output_validators is not None:
        changes["output_validators"] = as_tuple("output_validators", options.output_validators)
    tools = () if options.tools is None else as_tuple("tools", options.tools)
    if tools:
        own = Scope("chat", tools=tools)
        changes["scopes"] = ChatScopes(config.scopes, own, hides=speaks_later)
    return msgspec.structs.replace(config, **changes) if changes else config
