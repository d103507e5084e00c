"""THE TABLE: one row per hook point, in the order of a chat's life.

A row is a frozen class: its fields are the context that the hooks get, its head says name, kind
and what each returned type does. Dispatch, the typed overloads of `add_hook`, docs/hooks.md and
the tests are made from this table. To add a point: one row here, one firing line, one test. It is
long because it is one table: whoever looks for a point finds it here.

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

from hookline._errors import HookOptionError, UnknownHookError
from hookline._messages import (
    AssistantMessage,
    Data,
    Message,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from hookline._model import (
    ChatRequest,
    Delta,
    ModelRequest,
    ModelResponse,
    PartEndChunk,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
)
from hookline._outcomes import (
    ApprovalRequest,
    Ask,
    Continue,
    Decision,
    MessageChanges,
    Outcome,
    Response,
    Stop,
    ToolError,
    ToolResult,
)
from hookline._run import D, Run
from hookline._scopes import Scope
from hookline._tools import AnyTool

Kind = Literal["observer", "interceptor", "wrapper"]
HookOutcome = Literal["ok", "changed", "answered", "blocked", "stopped", "asked", "raised"]
C = TypeVar("C", bound=type)
R = TypeVar("R")

END: Final = "(end)"  # the value ends the chain and stands for what would have come
KEEP: Final = "(keep)"  # the value is collected and the chain goes on

ENDS_CHAT: Final = "ends the chat; `onChatError`; the same exception reaches the caller"
IGNORED: Final = "logged and ignored"
NO_CHAT: Final = "runs again: a change is no part of a chat"


class Head(Data, frozen=True, kw_only=True):
    """What a row says of its point.

    `acts` maps each type that a hook may return to what it does: END, KEEP, or the name of the
    context's field that it replaces. `check` finds fault with a replacement (None: it is fine).
    """

    name: str
    kind: Kind
    acts: dict[type, str]
    check: Callable[[Any, Any], str | None] | None = None
    at_tool: bool = False
    flat: bool = False
    payload: str = ""  # the field that `proceed(changed)` replaces; that a point of one's own gives
    takes: tuple[type, ...] = ()  # what `proceed(changed)` may be given
    throws: str = ENDS_CHAT
    replay: str = "not run again"
    note: str = ""
    context: type

    @property
    def key(self) -> str | type:
        """What the point's hooks are kept by: its name in the table, or the user's class."""
        return self.name if TABLE.get(self.name) is self else self.context

    @property
    def allowed(self) -> str:
        names = [kind.__name__ for kind in self.acts]
        if self.flat:
            names.append("a tuple of these")
        return ", ".join([*names, "None"] if self.kind == "interceptor" else names) or "nothing"


TABLE: dict[str, Head] = {}
_heads: dict[type, Head] = {}


def row(
    name: str, kind: Kind, acts: dict[type, str] | None = None, **rest: Any
) -> Callable[[C], C]:
    """Enter the class below into the table."""

    def enter(context: C) -> C:
        head = Head(name=name, kind=kind, acts=acts or {}, context=context, **rest)
        TABLE[name] = _heads[context] = head
        return context

    return enter


def head_of(point: object) -> Head:
    """The head of a point given by name or by context class; raises UnknownHookError."""
    head = (
        TABLE.get(point) if isinstance(point, str) else _head_of_class(get_origin(point) or point)
    )
    if head is None:
        name = point if isinstance(point, str) else getattr(point, "__name__", repr(point))
        raise UnknownHookError(name, TABLE)
    return head


def _head_of_class(context: Any) -> Head | None:
    if not isinstance(context, type):
        return None
    head = _heads.get(context)
    if head is None and context not in _OWN:
        declare: Callable[[], Head] | None = getattr(context, "declare", None)
        if declare is not None and issubclass(context, _OWN):
            head = _heads[context] = declare()
    return head


# ── points of a user's own ──────────────────────────────────────────────────────────────────


class Observer(Data, frozen=True):
    """Base of an observer point of your own: `bus.notify(MyPoint(...))` fires it."""

    @classmethod
    def declare(cls) -> Head:
        return Head(name=cls.__qualname__, kind="observer", acts={}, context=cls)


class Interceptor(Data, Generic[R], frozen=True):
    """Base of an interceptor point of your own.

    `bus.intercept(MyPoint(...))` gives an R: the class's first field (or the one that `payload`
    names) as the hooks left it, or the value of a type in `ends` that ended the chain.
    """

    payload: ClassVar[str] = ""
    ends: ClassVar[tuple[type, ...]] = ()

    @classmethod
    def declare(cls) -> Head:
        field = _payload(cls)
        acts = dict.fromkeys(_taken(cls, Interceptor), field)
        acts.update(dict.fromkeys(cls.ends, END))
        return Head(
            name=cls.__qualname__, kind="interceptor", acts=acts, payload=field, context=cls
        )


class Wrapper(Data, Generic[R], frozen=True):
    """Base of a wrapper point of your own: `bus.wrap(MyPoint(...), inner)` gives an R.

    `inner` gets the payload: the class's first field, or the one that `payload` names.
    """

    payload: ClassVar[str] = ""

    @classmethod
    def declare(cls) -> Head:
        acts = dict.fromkeys(_taken(cls, Wrapper), END)
        field = _payload(cls)
        return Head(
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
        raise HookOptionError(cls.__qualname__, "-", "the point needs a field to be its payload")
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


def _same_message(ctx: Any, message: Message) -> str | None:
    old: Message = ctx.message
    same = type(message) is type(old) and message.id == old.id
    if same and isinstance(old, AssistantMessage) and isinstance(message, AssistantMessage):
        same = message.calls == old.calls
    if same and isinstance(old, ToolMessage) and isinstance(message, ToolMessage):
        same = (message.call_id, message.name) == (old.call_id, old.name)
    return None if same else "a message of the same role, id and calls"


# ── the contexts ────────────────────────────────────────────────────────────────────────────


class Context(Data, Generic[D], frozen=True, kw_only=True):
    """What every context has."""

    run: Run[D]


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


@row("onChatStart", "observer")
class OnChatStart(Context[D], frozen=True, kw_only=True):
    """Once, before the user message is in history; `message` is None for a resumed chat."""

    message: UserMessage | None


@row(
    "preChat",
    "interceptor",
    {ChatRequest: "request", ModelResponse: END, Stop: END},
    note="`ModelResponse` stands for step 0's answer; after `Stop` nothing is written",
)
class PreChat(Context[D], frozen=True, kw_only=True):
    """Before the chat: what it begins with, for all its steps."""

    request: ChatRequest


@row(
    "preRequest",
    "interceptor",
    {ModelRequest: "request", ModelResponse: END, Stop: END},
    note="`ModelResponse` skips the model and `aroundRequest`",
)
class PreRequest(Context[D], frozen=True, kw_only=True):
    """Before each model call; an edit lasts one call."""

    iteration: int
    request: ModelRequest


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
    request: ModelRequest


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
    delta: Delta


@row("onResponse", "interceptor", {ModelResponse: "response"})
class OnResponse(Context[D], frozen=True, kw_only=True):
    """After each model answer, real or given by a hook, before it is committed."""

    iteration: int
    request: ModelRequest
    response: ModelResponse


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


@row("onMessage", "observer")
class OnMessage(Context[D], frozen=True, kw_only=True):
    """After every commit: user, assistant and tool messages."""

    message: Message


@row(
    "preToolCall",
    "interceptor",
    {ToolCall: "call", Ask: KEEP, ToolResult: END, ToolError: END, Stop: END},
    check=_same_call,
    at_tool=True,
    throws=f"{ENDS_CHAT}; with `on_error='deny'` this call alone is refused",
    note="arguments only may change; the handler does not run after an END",
)
class PreToolCall(Context[D], frozen=True, kw_only=True):
    """Before a call's arguments are validated and before anything runs."""

    iteration: int
    call: ToolCall
    tool: AnyTool
    scope: Scope


@row(
    "aroundToolCall",
    "wrapper",
    {ToolResult: END, ToolError: END},
    payload="call",
    takes=(ToolCall,),
    check=_same_call,
    at_tool=True,
    note="`proceed` never raises for the tool; again only if the tool is `idempotent`",
)
class AroundToolCall(Context[D], frozen=True, kw_only=True):
    """Around a tool's handler."""

    call: ToolCall
    tool: AnyTool
    scope: Scope


@row(
    "onToolCallResult",
    "interceptor",
    {ToolResult: "result", ToolError: END},
    at_tool=True,
    throws=f"{ENDS_CHAT}; history keeps 'ran; result withheld'",
    note="`ToolError` converts: it goes through `onToolCallError` once",
)
class OnToolCallResult(Context[D], frozen=True, kw_only=True):
    """After a call has a result, before it is written to history."""

    call: ToolCall
    tool: AnyTool
    scope: Scope
    result: ToolResult


@row(
    "onToolCallError",
    "interceptor",
    {ToolError: "error", ToolResult: END, Stop: KEEP},
    at_tool=True,
    throws=f"{ENDS_CHAT}; history keeps 'ran; result withheld'",
    note="`ToolResult` recovers: it goes through `onToolCallResult` once; `Stop` after the step",
)
class OnToolCallError(Context[D], frozen=True, kw_only=True):
    """After a call failed, was refused, or named no tool (then `tool` is None)."""

    call: ToolCall
    tool: AnyTool | None
    scope: Scope | None
    error: ToolError


@row("onStep", "interceptor", {Stop: KEEP}, note="of several `Stop`s the first in order counts")
class OnStep(Context[D], frozen=True, kw_only=True):
    """After a step: the answer and the results of its calls."""

    iteration: int
    response: ModelResponse
    results: tuple[ToolMessage, ...]


@row(
    "preStop",
    "interceptor",
    {Continue: KEEP},
    note="`reason` is None at a natural end, where alone `Continue` counts; several are joined",
)
class PreStop(Context[D], frozen=True, kw_only=True):
    """Before a chat ends well."""

    reason: str | None
    response: Response
    steps: int
    continuations: int


@row(
    "onChatDone",
    "observer",
    throws="the others still run, `ChatDone` is delivered, then the first exception is raised",
)
class OnChatDone(Context[D], frozen=True, kw_only=True):
    """The chat is done; exactly one of done, abort and error follows each start."""

    response: Response


@row("onChatAbort", "observer", throws=IGNORED)
class OnChatAbort(Context[D], frozen=True, kw_only=True):
    """The chat was aborted; `partial` holds the messages that were kept."""

    reason: str | None
    partial: tuple[Message, ...]


@row("onChatError", "observer", throws=IGNORED)
class OnChatError(Context[D], frozen=True, kw_only=True):
    """The chat failed."""

    error: BaseException


@row("onChatEnd", "observer", throws=IGNORED)
class OnChatEnd(Context[D], frozen=True, kw_only=True):
    """After done, abort or error."""

    outcome: Outcome
    response: Response | None
    error: BaseException | None
    usage: Usage
    duration: float


@row("onStatus", "observer", throws=f"{ENDS_CHAT}, also from a tool, which cannot catch it")
class OnStatus(Context[D], frozen=True, kw_only=True):
    """A hook or a tool reported progress."""

    type: str
    data: Any
    call: ToolCall | None


@row("onApproval", "observer")
class OnApproval(Context[D], frozen=True, kw_only=True):
    """A call was put to somebody (`decision` is None), or was answered."""

    request: ApprovalRequest
    decision: Decision | None


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
    changes: MessageChanges


@row(
    "onMessageUpdate",
    "observer",
    throws="the change stands; the same exception reaches the caller",
    replay=NO_CHAT,
)
class OnMessageUpdate(Context[D], frozen=True, kw_only=True):
    """After it was changed: `message` is what stands there now."""

    message: Message
    changes: MessageChanges


@row("onScopeRegister", "observer", throws=IGNORED, note="outside a chat: there is no `run`")
class OnScopeRegister(Data, frozen=True, kw_only=True):
    """A scope was registered."""

    scope: Scope


@row("onScopeUnregister", "observer", throws=IGNORED, note="outside a chat: there is no `run`")
class OnScopeUnregister(Data, frozen=True, kw_only=True):
    """A scope was removed."""

    scope: Scope


@row("onHook", "observer", throws=IGNORED, note="never for itself; `run` is None outside a chat")
class OnHook(Data, Generic[D], frozen=True, kw_only=True):
    """After each hook of another point: what it decided and how long it took, in seconds."""

    run: Run[D] | None
    point: str
    hook: str
    outcome: HookOutcome
    duration: float


DECIDED: Final[dict[type, HookOutcome]] = {
    Stop: "stopped",
    Ask: "asked",
    ToolError: "blocked",
    ToolResult: "answered",
    ModelResponse: "answered",
}
