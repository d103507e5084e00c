"""THE TABLE: one row per hook point, in the order in which a chat reaches them.

A row is a frozen class: its fields are the context that the hooks get, and its spec has the name,
the kind and the effect of each type that a hook may return. Dispatch, the typed overloads of
`add_hook`, docs/hooks.md and the tests are derived from this table. docs/design.md lists the places
to change when you add a point.

User-defined points are classes derived from Observer, Interceptor or Wrapper. They use the same
mechanism, but have no name in the table.
"""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from hookline._base.errors import HookOptionError, UnknownHookError
from hookline._base.messages import (
    AssistantMessage,
    Data,
    Message,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from hookline._base.returns import (
    ApprovalRequest,
    Approve,
    Ask,
    Compaction,
    Continue,
    Decision,
    Deny,
    Guide,
    Hold,
    MessageChanges,
    Outcome,
    Response,
    Stop,
    ToolFailure,
    ToolResult,
    When,
)
from hookline._base.run import D, Run
from hookline._model.model import (
    ChatRequest,
    Delta,
    FileChunk,
    ModelRequest,
    ModelResponse,
    PartEndChunk,
    ReasoningChunk,
    SourceChunk,
    TextChunk,
    ToolCallChunk,
)
from hookline._tools.scopes import Scope
from hookline._tools.tool import AnyTool

Kind = Literal["observer", "interceptor", "wrapper"]
"""The three kinds of hook point."""
Moment = Literal[
    "chat", "start", "request", "model", "delta", "response", "message", "call", "tool", "result",
    "step", "stop", "outcome", "end", "anytime", "update", "scope",
]  # fmt: skip
"""The part of a chat's life in which a point fires."""
HookOutcome = Literal["ok", "changed", "answered", "blocked", "stopped", "asked", "raised"]
"""The decision of a hook, as onHook reports it."""
C = TypeVar("C", bound=type)
R = TypeVar("R")

END: Final = "(end)"  # the value ends the chain and is its result
KEEP: Final = "(keep)"  # the value is collected and the chain continues

ENDS_CHAT: Final = "the chat ends, `onChatError` fires, and the same exception reaches the caller"
LOGGED: Final = "the exception is logged and ignored"
NO_CHAT: Final = "runs again, because a change of a message is not part of a chat"


class PointSpec(Data, frozen=True, kw_only=True):
    """The properties of a hook point, as defined by its row in the table.

    `acts` maps the types that a hook may return to their effects: END, KEEP, or the name of the
    field that the value replaces. `check` describes an invalid replacement, or returns None.
    """

    name: str
    """The point's name, such as "preToolCall"."""
    kind: Kind
    """The point's kind: observer, interceptor or wrapper."""
    acts: dict[type, str]
    """The types that a hook may return, and the effect of each."""
    check: Callable[[Any, Any], str | None] | None = None
    """A function that returns why a replacement is invalid; None if the replacement is valid."""
    at_tool: bool = False
    """Whether hooks at this point can be limited to tools with `tools=`."""
    flat: bool = False
    """Whether a hook may return a tuple of the allowed values."""
    pair: tuple[type, type] | None = None
    """Two types whose values a hook may return together, as a tuple."""
    payload: str = ""
    """The field that `proceed(changed)` or a user-defined interceptor replaces."""
    takes: tuple[type, ...] = ()
    """The types that `proceed(changed)` accepts."""
    throws: str = ENDS_CHAT
    """The effect of an exception that a hook raises."""
    replay: str = "not run again"
    """What a durable runtime does with the hooks of this point when it replays the chat."""
    note: str = ""
    """Further remarks, as sentences; the last sentence has no full stop."""
    moment: Moment = "anytime"
    """The part of a chat's life in which the point fires."""
    line: str = ""
    """The fields that a recording shows, such as `"iteration delta"`; `!r` shows quotes."""
    context: type
    """The class of the context that hooks are called with."""

    @property
    def key(self) -> str | type:
        """The key of the point's hooks: the name in the table, or the user-defined class."""
        # Your own class may have the name of a built-in point, and two classes the same name.
        return self.name if TABLE.get(self.name) is self else self.context

    @property
    def may_return(self) -> str:
        """The values that a hook may return, as text for an error message."""
        names = [kind.__name__ for kind in self.acts]
        if self.flat:
            names.append("a tuple of these")
        if self.pair is not None:
            names.append(f"a tuple ({self.pair[0].__name__}, {self.pair[1].__name__})")
        return ", ".join([*names, "None"] if self.kind == "interceptor" else names) or "nothing"


TABLE: dict[str, PointSpec] = {}
"""The rows by name, in the order in which a chat reaches the points."""
_specs: dict[type, PointSpec] = {}


def row(
    name: str, kind: Kind, acts: dict[type, str] | None = None, *, moment: Moment, **rest: Any
) -> Callable[[C], C]:
    """Enter the decorated class into the table."""

    def enter(context: C) -> C:
        spec = PointSpec(
            name=name, kind=kind, acts=acts or {}, moment=moment, context=context, **rest
        )
        TABLE[name] = _specs[context] = spec
        return context

    return enter


def spec_of(point: object) -> PointSpec:
    """Return the spec of a point, given by name or context class; raises UnknownHookError."""
    spec = (
        TABLE.get(point) if isinstance(point, str) else _spec_of_class(get_origin(point) or point)
    )
    if spec is None:
        name = point if isinstance(point, str) else getattr(point, "__name__", repr(point))
        raise UnknownHookError(name, TABLE)
    return spec


def _spec_of_class(context: Any) -> PointSpec | None:
    if not isinstance(context, type):
        return None
    spec = _specs.get(context)
    if spec is None and context not in _OWN:
        declare: Callable[[], PointSpec] | None = getattr(context, "declare", None)
        if declare is not None and issubclass(context, _OWN):
            spec = _specs[context] = declare()
    return spec


# ── user-defined points ─────────────────────────────────────────────────────────────────────


class Observer(Data, frozen=True):
    """Base class for your own observer points: `bus.notify(MyPoint(...))` fires the point."""

    @classmethod
    def declare(cls) -> PointSpec:
        """Make the point's properties; called when the point is first used."""
        return PointSpec(name=cls.__qualname__, kind="observer", acts={}, context=cls)


class Interceptor(Data, Generic[R], frozen=True):
    """Base class for your own interceptor points.

    `bus.intercept(MyPoint(...))` returns the payload, an R, as the hooks have changed it. The
    payload is the value of the first field of the class; to use another field, set `payload` to the
    name of that field. A hook can also end the chain with a value whose type is in `ends`. In this
    case, `bus.intercept` returns that value.
    """

    payload: ClassVar[str] = ""
    """The name of the field that hooks may change; by default the first field."""
    ends: ClassVar[tuple[type, ...]] = ()
    """Types that end the chain. If a hook returns a value of one of these types, that value is the
    result."""

    @classmethod
    def declare(cls) -> PointSpec:
        """Make the point's properties when the point is first used; raises HookOptionError."""
        field = _payload(cls)
        acts = dict.fromkeys(_types_of(cls, Interceptor), field)
        acts.update(dict.fromkeys(cls.ends, END))
        return PointSpec(
            name=cls.__qualname__, kind="interceptor", acts=acts, payload=field, context=cls
        )


class Wrapper(Data, Generic[R], frozen=True):
    """Base class for your own wrapper points: `bus.wrap(MyPoint(...), inner)` returns an R.

    `inner` is called with the payload: the first field of the class, or the field that `payload`
    names.
    """

    payload: ClassVar[str] = ""
    """The name of the field that `inner` is called with; by default the first field."""

    @classmethod
    def declare(cls) -> PointSpec:
        """Make the point's properties when the point is first used; raises HookOptionError."""
        acts = dict.fromkeys(_types_of(cls, Wrapper), END)
        field = _payload(cls)
        return PointSpec(
            name=cls.__qualname__,
            kind="wrapper",
            acts=acts,
            payload=field,
            takes=_field_types(cls, field),
            context=cls,
        )


_OWN = (Observer, Interceptor, Wrapper)


def _payload(cls: Any) -> str:
    field: str = cls.payload or next(iter(cls.__struct_fields__), "")
    if field not in cls.__struct_fields__:
        raise HookOptionError(
            cls.__qualname__, "-", "the point needs a field for its payload: declare a field"
        )
    return field


def _types_of(cls: type, base: type) -> tuple[type, ...]:
    """The runtime types of R in `class MyPoint(Interceptor[R])`."""
    for parent in getattr(cls, "__orig_bases__", ()):
        if get_origin(parent) is base:
            return tuple(dict.fromkeys(_runtime_types(get_args(parent)[0])))
    return (object,)


def _field_types(cls: type, field: str) -> tuple[type, ...]:
    try:
        hint = get_type_hints(cls)[field]
    except Exception:  # the hint cannot be resolved, so it accepts any type
        return (object,)
    return tuple(_runtime_types(hint))


def _runtime_types(hint: Any) -> list[type]:
    """The types of a hint that isinstance can check; `object` if it can check none."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _runtime_types(get_args(hint)[0])
    if origin in (Union, UnionType):
        return [kind for arm in get_args(hint) for kind in _runtime_types(arm)]
    kind = origin or hint
    if kind is None:
        return [type(None)]
    if kind is Any or not isinstance(kind, type):
        return [object]  # Any, a TypeVar, a NewType, a Literal
    if is_typeddict(kind):
        return [dict]
    if getattr(kind, "_is_protocol", False) and not getattr(kind, "_is_runtime_protocol", False):
        return [object]
    return [kind]


# ── restrictions on replacements ────────────────────────────────────────────────────────────


def _same_call(ctx: Any, call: ToolCall | Ask | Approve) -> str | None:
    if isinstance(call, Approve):
        changes = call.arguments is not None or call.remember is not None
        return "Approve without arguments= and remember=" if changes else None
    if isinstance(call, Ask):
        return None
    if call.id != ctx.call.id or call.name != ctx.call.name:
        return f"ToolCall with id {ctx.call.id!r} and name {ctx.call.name!r} (arguments only)"
    return None


def _no_message(ctx: Any, request: ChatRequest) -> str | None:
    if ctx.request.message is None and request.message is not None:
        return "a ChatRequest without a message, because the chat continues from its history"
    if ctx.request.message is not None and request.message is None:
        return "a ChatRequest with a message"
    return None


def _some_messages(ctx: Any, compaction: Compaction) -> str | None:
    most = len(ctx.messages)
    return None if 1 <= compaction.keep <= most else f"a Compaction with keep= from 1 to {most}"


def _same_message(ctx: Any, message: Message) -> str | None:
    old: Message = ctx.message
    same = type(message) is type(old) and message.id == old.id
    if same and isinstance(old, AssistantMessage) and isinstance(message, AssistantMessage):
        same = message.tool_calls == old.tool_calls
    if same and isinstance(old, ToolMessage) and isinstance(message, ToolMessage):
        same = (message.call_id, message.name) == (old.call_id, old.name)
    return None if same else "a message of the same role, id and calls"


# ── the contexts ────────────────────────────────────────────────────────────────────────────


class Context(Data, Generic[D], frozen=True, kw_only=True):
    """The fields that every context has."""

    run: Run[D]
    """The chat that the hook runs in."""


@row(
    "aroundChat",
    "wrapper",
    {Response: END},
    payload="message",
    takes=(UserMessage,),
    throws="before `proceed`, the exception reaches only the caller; after `proceed`, the chat "
    "keeps its outcome and the exception is raised",
    replay="runs again, because the hook wraps the whole chat",
    note="Call `proceed` exactly once. If the chat raises an exception, `proceed` raises the same "
    "exception",
    moment="chat",
)
class AroundChat(Context[D], frozen=True, kw_only=True):
    """Around the whole chat."""

    message: UserMessage | None
    """The user's message; None if the chat is resumed or continues from its history."""


@row("onChatStart", "observer", moment="start", line="message.text")
class OnChatStart(Context[D], frozen=True, kw_only=True):
    """Once, before the user's message is added to the history."""

    message: UserMessage | None
    """The user's message; None if the chat is resumed or continues from its history."""


@row(
    "preChat",
    "interceptor",
    {ChatRequest: "request", ModelResponse: END, Stop: END},
    check=_no_message,
    note="A `ModelResponse` that a hook returns becomes the first answer, and the model is not "
    "called. If a hook returns a `Stop`, nothing is written",
    moment="start",
    line="request.message.text",
)
class PreChat(Context[D], frozen=True, kw_only=True):
    """Before the first step; a change by a hook applies to all steps of the chat."""

    request: ChatRequest
    """The message, system text, tools and settings of the chat."""


@row(
    "preSteer",
    "interceptor",
    {UserMessage: "message", Hold: END, Deny: END},
    check=_same_message,
    note="A `Hold` keeps the message in the queue until the next request. A `Deny` returns it to "
    "its sender with the reason. The message's id must stay the same",
    moment="request",
    line="when message.text!r",
)
class PreSteer(Context[D], frozen=True, kw_only=True):
    """Before a message that was sent into the running chat is added to the history."""

    message: UserMessage
    """The message that was sent."""
    when: When
    """"next" or "idle", as the message was sent."""


@row(
    "preCompact",
    "interceptor",
    {Compaction: "compaction", Deny: END},
    check=_some_messages,
    note="The point fires when a hook calls `run.compact()`. `window` calls it for each request "
    "that it shortens, and `summarize` before it writes a summary. A `Deny` leaves the messages as "
    "they are",
    moment="request",
    line="hook compaction",
)
class PreCompact(Context[D], frozen=True, kw_only=True):
    """Before a hook leaves old messages out of requests."""

    hook: str
    """The name of the hook that shortens, such as "window"."""
    messages: tuple[Message, ...]
    """The messages of the request."""
    compaction: Compaction
    """How many of the last messages stay, and the text that replaces the others."""


@row(
    "preRequest",
    "interceptor",
    {ModelRequest: "request", ModelResponse: END, Stop: END},
    note="To choose the model, return `ctx.request.replace(model=…)`. A `ModelResponse` that a "
    "hook returns becomes the answer: the model and `aroundRequest` are skipped",
    moment="request",
    line="iteration",
)
class PreRequest(Context[D], frozen=True, kw_only=True):
    """Before each model call; a change by a hook applies only to that call."""

    iteration: int
    """The step, counted from 0."""
    request: ModelRequest
    """The request that is about to be sent to the model."""


@row(
    "aroundRequest",
    "wrapper",
    {ModelResponse: END},
    payload="request",
    takes=(ModelRequest,),
    note="If you call `proceed` again after text was shown, a `ResponseReset` event withdraws that "
    "text",
    moment="model",
    line="iteration",
)
class AroundRequest(Context[D], frozen=True, kw_only=True):
    """Around each model call."""

    iteration: int
    """The step, counted from 0."""
    request: ModelRequest
    """The request that `proceed()` sends to the model."""


@row(
    "onDelta",
    "interceptor",
    {
        TextChunk: "delta",
        ReasoningChunk: "delta",
        PartEndChunk: "delta",
        ToolCallChunk: "delta",
        SourceChunk: "delta",
        FileChunk: "delta",
    },
    flat=True,
    note="An empty tuple drops the delta. A `PartEndChunk` cannot be dropped. Dropping a "
    "`ToolCallChunk` only hides the chunk from the stream",
    moment="delta",
    line="iteration delta",
)
class OnDelta(Context[D], frozen=True, kw_only=True):
    """At each delta of the answer, before the delta is streamed, stored and traced."""

    iteration: int
    """The step, counted from 0."""
    delta: Delta
    """A piece of text, of reasoning or of a tool call; the end of a part; a source; or a file."""


@row(
    "onResponse",
    "interceptor",
    {ModelResponse: "response", Guide: END},
    note="A `Guide` withdraws the answer: nothing of it is stored, a `ResponseReset` takes back "
    "the text that was shown, and its calls do not run. The reason becomes a user message, and the "
    "model is asked again, which counts as a step",
    moment="response",
    line="iteration response",
)
class OnResponse(Context[D], frozen=True, kw_only=True):
    """After each answer of the model or of a hook, before the answer is added to the history."""

    iteration: int
    """The step, counted from 0."""
    request: ModelRequest
    """The request that was answered."""
    response: ModelResponse
    """The model's response."""


@row(
    "preMessage",
    "interceptor",
    {UserMessage: "message", AssistantMessage: "message", ToolMessage: "message"},
    check=_same_message,
    note="The message's role, id and tool calls must stay the same",
    moment="message",
    line="message",
)
class PreMessage(Context[D], frozen=True, kw_only=True):
    """Before a message is added to the history."""

    message: Message
    """The message that is about to be added to the history."""


@row("onMessage", "observer", moment="message", line="message")
class OnMessage(Context[D], frozen=True, kw_only=True):
    """After a message was added to the history: a user, assistant or tool message."""

    message: Message
    """The message as it is in the history."""


@row(
    "preToolCall",
    "interceptor",
    {
        ToolCall: "call",
        Ask: KEEP,
        Approve: KEEP,
        ToolResult: END,
        ToolFailure: END,
        Deny: END,
        Stop: END,
    },
    check=_same_call,
    at_tool=True,
    pair=(ToolCall, Ask),
    throws=f"{ENDS_CHAT}; with `on_error='deny'`, only this call is refused",
    note="A hook may change only the arguments of the call. `(call, Ask(…))` changes the call and "
    "asks about it. `Approve()` answers the questions of the hooks before it. If a hook returns a "
    "result, a `Deny` or a `Stop`, the tool does not run",
    moment="call",
    line="call",
)
class PreToolCall(Context[D], frozen=True, kw_only=True):
    """Before a call's arguments are validated and before the tool runs."""

    iteration: int
    """The step, counted from 0."""
    call: ToolCall
    """The model's call, as changed by earlier hooks."""
    tool: AnyTool
    """The tool that is called."""
    scope: Scope
    """The scope that the tool belongs to."""
    again: bool = False
    """Whether a guard is asked a second time, because the call has changed or has waited."""


@row(
    "aroundToolCall",
    "wrapper",
    {ToolResult: END, ToolFailure: END},
    payload="call",
    takes=(ToolCall,),
    check=_same_call,
    at_tool=True,
    note="If the tool raises an exception, `proceed` returns a `ToolFailure`. Call `proceed` again "
    "only if the tool is `idempotent`",
    moment="tool",
    line="call.name",
)
class AroundToolCall(Context[D], frozen=True, kw_only=True):
    """Around the run of a tool."""

    call: ToolCall
    """The call that `proceed()` runs."""
    tool: AnyTool
    """The tool that is called."""
    scope: Scope
    """The scope that the tool belongs to."""


@row(
    "onToolCallResult",
    "interceptor",
    {ToolResult: "result", ToolFailure: END},
    at_tool=True,
    throws=f"{ENDS_CHAT}; the history shows 'ran; result withheld' as the call's result",
    note="If a hook returns a `ToolFailure`, the call fails, and the hooks at `onToolCallError` "
    "get the failure once",
    moment="result",
    line="call.name result",
)
class OnToolCallResult(Context[D], frozen=True, kw_only=True):
    """After a call has a result, before the result is added to the history."""

    call: ToolCall
    """The call that has run."""
    tool: AnyTool
    """The tool that was called."""
    scope: Scope
    """The scope that the tool belongs to."""
    result: ToolResult
    """The result; its `value` is JSON data."""


@row(
    "onToolCallError",
    "interceptor",
    {ToolFailure: "error", ToolResult: END, Stop: KEEP},
    at_tool=True,
    throws=f"{ENDS_CHAT}; the history shows 'ran; result withheld' as the call's result",
    note="If a hook returns a `ToolResult`, the call succeeds, and the hooks at `onToolCallResult` "
    "get the result once. A `Stop` takes effect after the step",
    moment="result",
    line="call.name error",
)
class OnToolCallError(Context[D], frozen=True, kw_only=True):
    """After a call failed, was refused, or named a tool that does not exist."""

    call: ToolCall
    """The call that failed."""
    tool: AnyTool | None
    """The tool; None if the agent has no tool of that name."""
    scope: Scope | None
    """The scope that the tool belongs to; None if the agent has no tool of that name."""
    error: ToolFailure
    """The failure that the model will see."""


@row(
    "onStep",
    "interceptor",
    {Stop: KEEP},
    note="If several hooks return a `Stop`, the first `Stop` in the order of the hooks counts",
    moment="step",
    line="iteration",
)
class OnStep(Context[D], frozen=True, kw_only=True):
    """After a step, that is, after an answer and the results of its tool calls."""

    iteration: int
    """The step, counted from 0."""
    response: ModelResponse
    """The answer."""
    results: tuple[ToolMessage, ...]
    """The results of the step's calls, in the order of the calls."""


@row(
    "preStop",
    "interceptor",
    {Continue: KEEP},
    note="A `Continue` counts only if the model ended the chat by itself (`ctx.reason` is None). "
    "If several hooks return a `Continue`, their inputs are joined. After `Limits.continuations` "
    "(3) of them, the hooks are no longer called, and the chat ends with the last answer",
    moment="stop",
    line="reason",
)
class PreStop(Context[D], frozen=True, kw_only=True):
    """Before a chat ends successfully."""

    reason: str | None
    """The reason of the `Stop`; None if the chat ends by itself."""
    response: Response
    """The response of the chat so far."""
    steps: int
    """The number of model calls so far."""
    continuations: int
    """The number of times that hooks at `preStop` have continued the chat."""


@row(
    "onChatDone",
    "observer",
    throws="the other hooks still run, and `ChatDone` is delivered; then the first exception is "
    "raised",
    note="For each started chat, exactly one of `onChatDone`, `onChatAbort` and `onChatError` "
    "fires",
    moment="outcome",
    line="response.text!r response.stop_reason",
)
class OnChatDone(Context[D], frozen=True, kw_only=True):
    """After the chat has ended successfully."""

    response: Response
    """The response that the caller gets."""


@row("onChatAbort", "observer", throws=LOGGED, moment="outcome", line="reason")
class OnChatAbort(Context[D], frozen=True, kw_only=True):
    """After the chat was aborted."""

    reason: str | None
    """The reason that was passed to `abort()`."""
    partial: tuple[Message, ...]
    """The messages of the chat up to the abort; the history keeps them."""
    by_reader: bool
    """True if the stream's reader aborted, so that the stream raises no exception."""


@row("onChatError", "observer", throws=LOGGED, moment="outcome", line="error")
class OnChatError(Context[D], frozen=True, kw_only=True):
    """After the chat has failed."""

    error: BaseException
    """The exception that the caller gets."""


@row("onChatEnd", "observer", throws=LOGGED, moment="end", line="outcome")
class OnChatEnd(Context[D], frozen=True, kw_only=True):
    """After `onChatDone`, `onChatAbort` or `onChatError`."""

    outcome: Outcome
    """"done", "aborted" or "error"."""
    response: Response | None
    """The response; None if the chat is not done."""
    error: BaseException | None
    """The exception; None if the chat did not fail."""
    usage: Usage
    """The tokens that the chat has used."""
    duration: float
    """The seconds since the chat began."""


@row(
    "onStatus",
    "observer",
    throws=f"{ENDS_CHAT}; a tool that reports the progress cannot catch the exception",
    moment="anytime",
    line="type data!r",
)
class OnStatus(Context[D], frozen=True, kw_only=True):
    """After a hook or a tool reported progress."""

    type: str
    """The name of the status, as passed to `run.status()`."""
    data: Any
    """JSON data."""
    call: ToolCall | None
    """The call whose tool reports the progress; None if a hook reports the progress."""


@row("onApproval", "observer", moment="anytime", line="request.call.name decision")
class OnApproval(Context[D], frozen=True, kw_only=True):
    """When an approval of a call is requested, and again when the request is answered."""

    request: ApprovalRequest
    """The request for approval."""
    decision: Decision | None
    """The answer; None while the approval is being requested."""


@row(
    "preMessageUpdate",
    "interceptor",
    {MessageChanges: "changes"},
    throws="nothing is written, and the same exception reaches the caller",
    replay=NO_CHAT,
    note="During the update, no chat uses the conversation. The message's role, id and tool calls "
    "must stay the same",
    moment="update",
    line="message",
)
class PreMessageUpdate(Context[D], frozen=True, kw_only=True):
    """Before a message in the history is changed."""

    message: Message
    """The message before the change."""
    changes: MessageChanges
    """The changes that are about to be made."""


@row(
    "onMessageUpdate",
    "observer",
    throws="the change is kept, and the same exception reaches the caller",
    replay=NO_CHAT,
    moment="update",
    line="message",
)
class OnMessageUpdate(Context[D], frozen=True, kw_only=True):
    """After a message in the history was changed."""

    message: Message
    """The message after the change."""
    changes: MessageChanges
    """The changes that were made."""


@row(
    "onScopeRegister",
    "observer",
    throws=LOGGED,
    note="The hook runs outside of a chat, so its context has no `run`",
    moment="scope",
    line="scope.label",
)
class OnScopeRegister(Data, frozen=True, kw_only=True):
    """After a scope was registered."""

    scope: Scope
    """The scope that was registered."""


@row(
    "onScopeUnregister",
    "observer",
    throws=LOGGED,
    note="The hook runs outside of a chat, so its context has no `run`",
    moment="scope",
    line="scope.label",
)
class OnScopeUnregister(Data, frozen=True, kw_only=True):
    """After a scope was removed."""

    scope: Scope
    """The scope that was removed."""


@row(
    "onHook",
    "observer",
    throws=LOGGED,
    note="Hooks at `onHook` itself are not reported. `ctx.run` is None outside of a chat. A "
    'wrapper that only lets an exception of `proceed` pass is "ok"',
    moment="anytime",
    line="point hook outcome",
)
class OnHook(Data, Generic[D], frozen=True, kw_only=True):
    """After each hook at another point, with that hook's input, decision and duration."""

    run: Run[D] | None
    """The chat; None outside of a chat."""
    point: str
    """The name of the hook's point."""
    hook: str
    """The hook's name."""
    id: str | None = None
    """The id of the hook's definition; None if it has none."""
    outcome: HookOutcome
    """"ok" (no change), "changed", "answered", "blocked", "stopped", "asked" or "raised"."""
    duration: float
    """The seconds that the hook took."""
    inner: float = 0.0
    """The seconds that a wrapper spent in `proceed`, as a part of `duration`."""
    context: Any = None
    """The hook's context."""
    returned: Any = None
    """The hook's return value; None if the hook raised an exception."""
    passed: Any = None
    """The changed payload that a wrapper passed to `proceed`."""


DECIDED: Final[dict[type, HookOutcome]] = {
    Stop: "stopped",
    Ask: "asked",
    ToolFailure: "blocked",
    Deny: "blocked",
    Guide: "blocked",
    Hold: "blocked",
    ToolResult: "answered",
    ModelResponse: "answered",
}
