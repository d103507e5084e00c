"""THE TABLE: one row per hook point, in the order of a chat's life.

A row is a frozen class: its fields are the context that the hooks get, its spec says name, kind
and what each returned type does. Dispatch, the typed overloads of `add_hook`, docs/hooks.md and
the tests are made from this table. To add a point: one row here, one firing line, one test.

Points of a user's own are classes derived from Observer, Interceptor or Wrapper: the same
mechanism, without a name in the table.
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
    Ask,
    Continue,
    Decision,
    Deny,
    MessageChanges,
    Outcome,
    Response,
    Stop,
    ToolFailure,
    ToolResult,
)
from hookline._base.run import D, Run
from hookline._model.model import (
    ChatRequest,
    Delta,
    ModelRequest,
    ModelResponse,
    PartEndChunk,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
)
from hookline._model.scopes import Scope
from hookline._model.tool import AnyTool

Kind = Literal["observer", "interceptor", "wrapper"]
HookOutcome = Literal["ok", "changed", "answered", "blocked", "stopped", "asked", "raised"]
C = TypeVar("C", bound=type)
R = TypeVar("R")

END: Final = "(end)"  # the value ends the chain and stands for what would have come
KEEP: Final = "(keep)"  # the value is collected and the chain goes on

ENDS_CHAT: Final = "ends the chat; `onChatError`; the same exception reaches the caller"
IGNORED: Final = "logged and ignored"
NO_CHAT: Final = "runs again: a change is no part of a chat"


class PointSpec(Data, frozen=True, kw_only=True):
    """What a row says of its point.

    `acts` maps each type that a hook may return to what it does: END, KEEP, or the name of the
    context's field that it replaces. `check` finds fault with a replacement (None: it is fine).
    """

    name: str
    """The point's name, such as "preToolCall"."""
    kind: Kind
    """Who may stand there: an observer, interceptor or wrapper."""
    acts: dict[type, str]
    """What a hook may return, and the field that it replaces or how it ends the chain."""
    check: Callable[[Any, Any], str | None] | None = None
    """Says why a replacement is refused; None where it is fine."""
    at_tool: bool = False
    """Whether `tools=` may limit its hooks."""
    flat: bool = False
    """Whether a hook may return a tuple of what it takes."""
    payload: str = ""  # the field that `proceed(changed)` replaces; that a point of one's own gives
    """The field that a change replaces."""
    takes: tuple[type, ...] = ()  # what `proceed(changed)` may be given
    """What `proceed(changed)` may be given."""
    throws: str = ENDS_CHAT
    """What a hook that throws does."""
    replay: str = "not run again"
    """What a durable runtime does with it when the chat runs again."""
    note: str = ""
    """What else there is to know."""
    context: type
    """The class of what the hooks get."""

    @property
    def key(self) -> str | type:
        """What the point's hooks are kept by: its name in the table, or the user's class."""
        return self.name if TABLE.get(self.name) is self else self.context

    @property
    def allowed(self) -> str:
        """What a hook may return, in words for an error."""
        names = [kind.__name__ for kind in self.acts]
        if self.flat:
            names.append("a tuple of these")
        return ", ".join([*names, "None"] if self.kind == "interceptor" else names) or "nothing"


TABLE: dict[str, PointSpec] = {}
"""The rows by their names, in the order of a chat's life."""
_specs: dict[type, PointSpec] = {}


def row(
    name: str, kind: Kind, acts: dict[type, str] | None = None, **rest: Any
) -> Callable[[C], C]:
    """Enter the class below into the table."""

    def enter(context: C) -> C:
        spec = PointSpec(name=name, kind=kind, acts=acts or {}, context=context, **rest)
        TABLE[name] = _specs[context] = spec
        return context

    return enter


def spec_of(point: object) -> PointSpec:
    """The spec of a point given by name or by context class; raises UnknownHookError."""
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


# ── points of a user's own ──────────────────────────────────────────────────────────────────


class Observer(Data, frozen=True):
    """Base of an observer point of your own: `bus.notify(MyPoint(...))` fires it."""

    @classmethod
    def declare(cls) -> PointSpec:
        """The point's row, made when it is first used."""
        return PointSpec(name=cls.__qualname__, kind="observer", acts={}, context=cls)


class Interceptor(Data, Generic[R], frozen=True):
    """Base of an interceptor point of your own.

    `bus.intercept(MyPoint(...))` gives an R: the class's first field (or the one that `payload`
    names) as the hooks left it, or the value of a type in `ends` that ended the chain.
    """

    payload: ClassVar[str] = ""
    """The field that hooks may change; by default the first."""
    ends: ClassVar[tuple[type, ...]] = ()
    """Types that end the chain and stand for its result."""

    @classmethod
    def declare(cls) -> PointSpec:
        """The point's row, made when it is first used; raises HookOptionError."""
        field = _payload(cls)
        acts = dict.fromkeys(_taken(cls, Interceptor), field)
        acts.update(dict.fromkeys(cls.ends, END))
        return PointSpec(
            name=cls.__qualname__, kind="interceptor", acts=acts, payload=field, context=cls
        )


class Wrapper(Data, Generic[R], frozen=True):
    """Base of a wrapper point of your own: `bus.wrap(MyPoint(...), inner)` gives an R.

    `inner` gets the payload: the class's first field, or the one that `payload` names.
    """

    payload: ClassVar[str] = ""
    """The field that `inner` gets; by default the first."""

    @classmethod
    def declare(cls) -> PointSpec:
        """The point's row, made when it is first used; raises HookOptionError."""
        acts = dict.fromkeys(_taken(cls, Wrapper), END)
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
            cls.__qualname__, "-", "the point needs a field to be its payload: declare one"
        )
    return field


def _taken(cls: type, base: type) -> tuple[type, ...]:
    """The runtime types behind R of `class MyPoint(Interceptor[R])`."""
    for parent in getattr(cls, "__orig_bases__", ()):
        if get_origin(parent) is base:
            return tuple(dict.fromkeys(_runtime_types(get_args(parent)[0])))
    return (object,)


def _field_types(cls: type, field: str) -> tuple[type, ...]:
    try:
        hint = get_type_hints(cls)[field]
    except Exception:  # a hint that cannot be resolved says nothing
        return (object,)
    return tuple(_runtime_types(hint))


def _runtime_types(hint: Any) -> list[type]:
    """What isinstance can ask of a hint; `object` where it can ask nothing."""
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


# ── what a replacement must keep ────────────────────────────────────────────────────────────


def _same_call(ctx: Any, call: ToolCall) -> str | None:
    if call.id != ctx.call.id or call.name != ctx.call.name:
        return f"ToolCall with id {ctx.call.id!r} and name {ctx.call.name!r} (arguments only)"
    return None


def _no_message(ctx: Any, request: ChatRequest) -> str | None:
    if ctx.request.message is None and request.message is not None:
        return "a ChatRequest without a message, as the chat goes on from its history"
    if ctx.request.message is not None and request.message is None:
        return "a ChatRequest with a message"
    return None


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
    """What every context has."""

    run: Run[D]
    """The chat, as a hook may know it."""


@row(
    "aroundChat",
    "wrapper",
    {Response: END},
    payload="message",
    takes=(UserMessage,),
    throws="before `proceed`: reaches the caller alone; after it: the outcome stands, then raised",
    replay="runs again: it spans the whole chat",
    note="`proceed` exactly once; it raises what the chat raises",
)
class AroundChat(Context[D], frozen=True, kw_only=True):
    """Around the whole chat."""

    message: UserMessage | None
    """None for a chat that is resumed or goes on from its history."""


@row("onChatStart", "observer")
class OnChatStart(Context[D], frozen=True, kw_only=True):
    """Once, before the user message is in history."""

    message: UserMessage | None
    """None for a chat that is resumed or goes on from its history."""


@row(
    "preChat",
    "interceptor",
    {ChatRequest: "request", ModelResponse: END, Stop: END},
    check=_no_message,
    note="`ModelResponse` stands for step 0's answer; after `Stop` nothing is written",
)
class PreChat(Context[D], frozen=True, kw_only=True):
    """Before the chat: what it begins with, for all its steps."""

    request: ChatRequest
    """The message, system text, tools and settings to begin with."""


@row(
    "preRequest",
    "interceptor",
    {ModelRequest: "request", ModelResponse: END, Stop: END},
    note="`ModelResponse` skips the model and `aroundRequest`",
)
class PreRequest(Context[D], frozen=True, kw_only=True):
    """Before each model call; an edit lasts one call."""

    iteration: int
    """The step, counted from 0."""
    request: ModelRequest
    """What the model is about to be given."""


@row(
    "aroundRequest",
    "wrapper",
    {ModelResponse: END},
    payload="request",
    takes=(ModelRequest,),
    note="calling `proceed` again after text was shown publishes `ResponseReset`",
)
class AroundRequest(Context[D], frozen=True, kw_only=True):
    """Around each model call."""

    iteration: int
    """The step, counted from 0."""
    request: ModelRequest
    """What `proceed()` gives to the model."""


@row(
    "onDelta",
    "interceptor",
    {
        TextChunk: "delta",
        ReasoningChunk: "delta",
        PartEndChunk: "delta",
        ToolCallChunk: "delta",
    },
    flat=True,
    note="an empty tuple drops it; a `PartEndChunk` cannot be dropped, a call only hidden",
)
class OnDelta(Context[D], frozen=True, kw_only=True):
    """Each delta of the answer: what is returned is streamed, stored and traced."""

    iteration: int
    """The step, counted from 0."""
    delta: Delta
    """A chunk of text, reasoning or a call, or the end of a part."""


@row("onResponse", "interceptor", {ModelResponse: "response"})
class OnResponse(Context[D], frozen=True, kw_only=True):
    """After each model answer, real or given by a hook, before it is committed."""

    iteration: int
    """The step, counted from 0."""
    request: ModelRequest
    """What was asked."""
    response: ModelResponse
    """What was answered."""


@row(
    "preMessage",
    "interceptor",
    {UserMessage: "message", AssistantMessage: "message", ToolMessage: "message"},
    check=_same_message,
    note="same role, id and calls",
)
class PreMessage(Context[D], frozen=True, kw_only=True):
    """Before a message is committed to history."""

    message: Message
    """What is about to stand in history."""


@row("onMessage", "observer")
class OnMessage(Context[D], frozen=True, kw_only=True):
    """After every commit: user, assistant and tool messages."""

    message: Message
    """What stands in history now."""


@row(
    "preToolCall",
    "interceptor",
    {ToolCall: "call", Ask: KEEP, ToolResult: END, ToolFailure: END, Deny: END, Stop: END},
    check=_same_call,
    at_tool=True,
    throws=f"{ENDS_CHAT}; with `on_error='deny'` this call alone is refused",
    note="arguments only may change; the handler does not run after an END",
)
class PreToolCall(Context[D], frozen=True, kw_only=True):
    """Before a call's arguments are validated and before anything runs."""

    iteration: int
    """The step, counted from 0."""
    call: ToolCall
    """What the model asked for, as earlier hooks left it."""
    tool: AnyTool
    """The tool that is called."""
    scope: Scope
    """Where the tool comes from."""


@row(
    "aroundToolCall",
    "wrapper",
    {ToolResult: END, ToolFailure: END},
    payload="call",
    takes=(ToolCall,),
    check=_same_call,
    at_tool=True,
    note="`proceed` never raises for the tool; again only if the tool is `idempotent`",
)
class AroundToolCall(Context[D], frozen=True, kw_only=True):
    """Around a tool's handler."""

    call: ToolCall
    """What `proceed()` runs."""
    tool: AnyTool
    """The tool that is called."""
    scope: Scope
    """Where the tool comes from."""


@row(
    "onToolCallResult",
    "interceptor",
    {ToolResult: "result", ToolFailure: END},
    at_tool=True,
    throws=f"{ENDS_CHAT}; history keeps 'ran; result withheld'",
    note="`ToolFailure` converts: it goes through `onToolCallError` once",
)
class OnToolCallResult(Context[D], frozen=True, kw_only=True):
    """After a call has a result, before it is written to history."""

    call: ToolCall
    """What has run."""
    tool: AnyTool
    """The tool that was called."""
    scope: Scope
    """Where the tool comes from."""
    result: ToolResult
    """Its value as JSON data."""


@row(
    "onToolCallError",
    "interceptor",
    {ToolFailure: "error", ToolResult: END, Stop: KEEP},
    at_tool=True,
    throws=f"{ENDS_CHAT}; history keeps 'ran; result withheld'",
    note="`ToolResult` recovers: it goes through `onToolCallResult` once; `Stop` after the step",
)
class OnToolCallError(Context[D], frozen=True, kw_only=True):
    """After a call failed, was refused, or named no tool (then `tool` is None)."""

    call: ToolCall
    """What was to run."""
    tool: AnyTool | None
    """None where there is no tool of that name."""
    scope: Scope | None
    """Where the tool comes from, None where there is none."""
    error: ToolFailure
    """What the model is to be told."""


@row("onStep", "interceptor", {Stop: KEEP}, note="of several `Stop`s the first in order counts")
class OnStep(Context[D], frozen=True, kw_only=True):
    """After a step: the answer and the results of its calls."""

    iteration: int
    """The step, counted from 0."""
    response: ModelResponse
    """The answer."""
    results: tuple[ToolMessage, ...]
    """The results of its calls, in the model's order."""


@row(
    "preStop",
    "interceptor",
    {Continue: KEEP},
    note="`reason` is None at a natural end, where alone `Continue` counts; several are joined",
)
class PreStop(Context[D], frozen=True, kw_only=True):
    """Before a chat ends well."""

    reason: str | None
    """Why the chat ends, None at a natural end."""
    response: Response
    """What the chat has come to."""
    steps: int
    """The model calls so far."""
    continuations: int
    """How often a hook has prolonged the chat so far."""


@row(
    "onChatDone",
    "observer",
    throws="the others still run, `ChatDone` is delivered, then the first exception is raised",
)
class OnChatDone(Context[D], frozen=True, kw_only=True):
    """The chat is done; exactly one of done, abort and error follows each start."""

    response: Response
    """What the caller is given."""


@row("onChatAbort", "observer", throws=IGNORED)
class OnChatAbort(Context[D], frozen=True, kw_only=True):
    """The chat was aborted; `partial` holds the messages that were kept."""

    reason: str | None
    """What was given to `abort()`."""
    partial: tuple[Message, ...]
    """The messages of the chat, as far as it came."""


@row("onChatError", "observer", throws=IGNORED)
class OnChatError(Context[D], frozen=True, kw_only=True):
    """The chat failed."""

    error: BaseException
    """The exception that reaches the caller."""


@row("onChatEnd", "observer", throws=IGNORED)
class OnChatEnd(Context[D], frozen=True, kw_only=True):
    """After done, abort or error."""

    outcome: Outcome
    """"done", "aborted" or "error"."""
    response: Response | None
    """There where the chat is done."""
    error: BaseException | None
    """There where the chat failed."""
    usage: Usage
    """What the chat has cost."""
    duration: float
    """Seconds since its start."""


@row("onStatus", "observer", throws=f"{ENDS_CHAT}, also from a tool, which cannot catch it")
class OnStatus(Context[D], frozen=True, kw_only=True):
    """A hook or a tool reported progress."""

    type: str
    """What is reported, in the reporter's words."""
    data: Any
    """JSON data."""
    call: ToolCall | None
    """The call whose tool reports, None for a hook."""


@row("onApproval", "observer")
class OnApproval(Context[D], frozen=True, kw_only=True):
    """A call was put to somebody (`decision` is None), or was answered."""

    request: ApprovalRequest
    """What is asked."""
    decision: Decision | None
    """None when the question is put; the answer when there is one."""


@row(
    "preMessageUpdate",
    "interceptor",
    {MessageChanges: "changes"},
    throws="nothing is written; the same exception reaches the caller",
    replay=NO_CHAT,
    note="no chat runs meanwhile; role, id and calls stay",
)
class PreMessageUpdate(Context[D], frozen=True, kw_only=True):
    """Before a message that stands in history is changed."""

    message: Message
    """As it stands."""
    changes: MessageChanges
    """What is to be different."""


@row(
    "onMessageUpdate",
    "observer",
    throws="the change stands; the same exception reaches the caller",
    replay=NO_CHAT,
)
class OnMessageUpdate(Context[D], frozen=True, kw_only=True):
    """After it was changed: `message` is what stands there now."""

    message: Message
    """The message as it is now."""
    changes: MessageChanges
    """What has been changed."""


@row("onScopeRegister", "observer", throws=IGNORED, note="outside a chat: there is no `run`")
class OnScopeRegister(Data, frozen=True, kw_only=True):
    """A scope was registered."""

    scope: Scope
    """The scope that is there now."""


@row("onScopeUnregister", "observer", throws=IGNORED, note="outside a chat: there is no `run`")
class OnScopeUnregister(Data, frozen=True, kw_only=True):
    """A scope was removed."""

    scope: Scope
    """The scope that is gone."""


@row("onHook", "observer", throws=IGNORED, note="never for itself; `run` is None outside a chat")
class OnHook(Data, Generic[D], frozen=True, kw_only=True):
    """After each hook of another point: what it decided and how long it took, in seconds."""

    run: Run[D] | None
    """The chat, None outside of one."""
    point: str
    """The name of the other point."""
    hook: str
    """The hook's name."""
    outcome: HookOutcome
    """What it decided."""
    duration: float
    """Seconds that it took."""


DECIDED: Final[dict[type, HookOutcome]] = {
    Stop: "stopped",
    Ask: "asked",
    ToolFailure: "blocked",
    Deny: "blocked",
    ToolResult: "answered",
    ModelResponse: "answered",
}
