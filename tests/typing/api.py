"""What the type checkers say of hooks. Never run: `scripts/check` reads it.

Right handlers pass at every hook point, by its name and by its context class, added and decorated,
sync and async. Wrong ones carry the error that is expected of each checker: `type: ignore[…]` is
for mypy, `pyright: ignore[…]` for pyright, and one that is not needed is an error itself.
"""

from __future__ import annotations

from typing import Any, TypeAlias, assert_never, assert_type

from hookline import (
    Agent,
    ApprovalRequest,
    Approve,
    Ask,
    ChatRequest,
    ChatStream,
    Continue,
    Conversation,
    Deny,
    Disposer,
    HookBus,
    HookDef,
    HookSet,
    Interceptor,
    Limits,
    MemoryStore,
    Message,
    MessageChanges,
    Model,
    ModelRequest,
    ModelResponse,
    Observer,
    Proceed,
    Response,
    Run,
    Settings,
    Stop,
    Store,
    Subscription,
    Tool,
    ToolCall,
    ToolFailure,
    ToolResult,
    Uninstall,
    UserMessage,
    Wrapper,
    define_hook,
    global_bus,
    tool,
)
from hookline.discovery import from_folder
from hookline.events import (
    ApprovalRequested,
    ChatAborted,
    ChatDone,
    ChatEvent,
    ChatFailed,
    ChatStarted,
    FileAdded,
    MessageAdded,
    MessageQueued,
    MessageReturned,
    PartEnd,
    ReasoningDelta,
    ResponseReset,
    SourceAdded,
    Status,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from hookline.hooks import approve, audit, budget, rate_limit, redact, retry
from hookline.models import Delta, TextChunk
from hookline.otel import Telemetry
from hookline.points import (
    AroundChat,
    AroundRequest,
    AroundToolCall,
    Compaction,
    Hold,
    OnApproval,
    OnChatAbort,
    OnChatDone,
    OnChatEnd,
    OnChatError,
    OnChatStart,
    OnDelta,
    OnHook,
    OnMessage,
    OnMessageUpdate,
    OnResponse,
    OnScopeRegister,
    OnScopeUnregister,
    OnStatus,
    OnStep,
    OnToolCallError,
    OnToolCallResult,
    PreChat,
    PreCompact,
    PreMessage,
    PreMessageUpdate,
    PreRequest,
    PreSteer,
    PreStop,
    PreToolCall,
)
from hookline.replay import Record, fork
from hookline.storage import ConversationInfo, Stored
from hookline.stores import SQLStore


class Deps:
    name: str = ""
    number: int = 0


class OtherDeps:
    other: str = ""


def any_model() -> Model:
    raise NotImplementedError


CallResult: TypeAlias = ToolResult | ToolFailure
Verdict: TypeAlias = ToolCall | Ask | ToolResult | ToolFailure | Stop | None
ChatProceed: TypeAlias = Proceed[UserMessage, Response]
RequestProceed: TypeAlias = Proceed[ModelRequest, ModelResponse]
CallProceed: TypeAlias = Proceed[ToolCall, CallResult]

agent: Agent[Deps] = Agent(any_model())


# ── right handlers, by point ────────────────────────────────────────────────────────────────


# aroundChat


async def around_chat(ctx: AroundChat[Deps], proceed: ChatProceed) -> Response:
    assert_type(await proceed(), Response)
    return await proceed(ctx.message)


agent.add_hook("aroundChat", around_chat, timeout=1)
agent.add_hook("aroundChat", lambda ctx, proceed: around_chat(ctx, proceed))
agent.add_hook(AroundChat, around_chat)


@agent.hook("aroundChat")
async def around_chat_by_name(ctx: AroundChat[Deps], proceed: ChatProceed) -> Response:
    return await proceed()


@agent.hook(AroundChat, priority=1, on_error="log")
async def around_chat_by_class(ctx: AroundChat[Deps], proceed: ChatProceed) -> Response:
    return await proceed()


# onChatStart


def on_chat_start(ctx: OnChatStart[Deps]) -> None: ...


async def on_chat_start_later(ctx: OnChatStart[Deps]) -> None: ...


agent.add_hook("onChatStart", on_chat_start)
agent.add_hook("onChatStart", on_chat_start_later, timeout=1)
agent.add_hook("onChatStart", lambda ctx: on_chat_start(ctx))
agent.add_hook(OnChatStart, on_chat_start)
agent.add_hook(OnChatStart, on_chat_start_later)


@agent.hook("onChatStart")
def on_chat_start_by_name(ctx: OnChatStart[Deps]) -> None: ...


@agent.hook(OnChatStart, priority=1, on_error="log")
async def on_chat_start_by_class(ctx: OnChatStart[Deps]) -> None: ...


# preChat


def pre_chat(ctx: PreChat[Deps]) -> ChatRequest | ModelResponse | Stop | None:
    if ctx.run.deps.number == 0:
        return ModelResponse.of("Hello.")
    if ctx.run.deps.number == 1:
        return Stop("enough")
    return ctx.request.replace(system="Be brief.") if ctx.run.deps.name else None


async def pre_chat_later(ctx: PreChat[Deps]) -> ChatRequest | ModelResponse | Stop | None:
    return ctx.request.replace(system="Be brief.")


def pre_chat_narrow(ctx: PreChat[Deps]) -> None: ...


agent.add_hook("preChat", pre_chat)
agent.add_hook("preChat", pre_chat_later, timeout=1)
agent.add_hook("preChat", pre_chat_narrow)
agent.add_hook("preChat", lambda ctx: pre_chat(ctx))
agent.add_hook("preChat", lambda ctx: ctx.request.replace(system="Be brief."))
agent.add_hook(PreChat, pre_chat)
agent.add_hook(PreChat, pre_chat_later)


@agent.hook("preChat")
def pre_chat_by_name(ctx: PreChat[Deps]) -> ChatRequest | ModelResponse | Stop | None:
    return Stop("enough")


@agent.hook(PreChat, priority=1, on_error="log")
async def pre_chat_by_class(ctx: PreChat[Deps]) -> ChatRequest | ModelResponse | Stop | None:
    return Stop("enough")


# preRequest


def pre_request(ctx: PreRequest[Deps]) -> ModelRequest | ModelResponse | Stop | None:
    if ctx.run.deps.number == 0:
        return ModelResponse.of("Hello.")
    if ctx.run.deps.number == 1:
        return Stop("enough")
    return ctx.request.replace(system="Be brief.") if ctx.run.deps.name else None


async def pre_request_later(ctx: PreRequest[Deps]) -> ModelRequest | ModelResponse | Stop | None:
    return ctx.request.replace(system="Be brief.")


def pre_request_narrow(ctx: PreRequest[Deps]) -> None: ...


agent.add_hook("preRequest", pre_request)
agent.add_hook("preRequest", pre_request_later, timeout=1)
agent.add_hook("preRequest", pre_request_narrow)
agent.add_hook("preRequest", lambda ctx: pre_request(ctx))
agent.add_hook("preRequest", lambda ctx: ctx.request.replace(system="Be brief."))
agent.add_hook(PreRequest, pre_request)
agent.add_hook(PreRequest, pre_request_later)


@agent.hook("preRequest")
def pre_request_by_name(ctx: PreRequest[Deps]) -> ModelRequest | ModelResponse | Stop | None:
    return Stop("enough")


@agent.hook(PreRequest, priority=1, on_error="log")
async def pre_request_by_class(ctx: PreRequest[Deps]) -> ModelRequest | ModelResponse | Stop | None:
    return Stop("enough")


# aroundRequest


async def around_request(ctx: AroundRequest[Deps], proceed: RequestProceed) -> ModelResponse:
    assert_type(await proceed(), ModelResponse)
    return await proceed(ctx.request)


agent.add_hook("aroundRequest", around_request, timeout=1)
agent.add_hook("aroundRequest", lambda ctx, proceed: around_request(ctx, proceed))
agent.add_hook(AroundRequest, around_request)


@agent.hook("aroundRequest")
async def around_request_by_name(
    ctx: AroundRequest[Deps], proceed: RequestProceed
) -> ModelResponse:
    return await proceed()


@agent.hook(AroundRequest, priority=1, on_error="log")
async def around_request_by_class(
    ctx: AroundRequest[Deps], proceed: RequestProceed
) -> ModelResponse:
    return await proceed()


# onDelta


def on_delta(ctx: OnDelta[Deps]) -> Delta | tuple[Delta, ...] | None:
    if ctx.run.deps.number == 0:
        return ()
    return ctx.delta if ctx.run.deps.name else None


async def on_delta_later(ctx: OnDelta[Deps]) -> Delta | tuple[Delta, ...] | None:
    return ctx.delta


def on_delta_narrow(ctx: OnDelta[Deps]) -> None: ...


agent.add_hook("onDelta", on_delta)
agent.add_hook("onDelta", on_delta_later, timeout=1)
agent.add_hook("onDelta", on_delta_narrow)
agent.add_hook("onDelta", lambda ctx: on_delta(ctx))
agent.add_hook("onDelta", lambda ctx: ctx.delta)
agent.add_hook(OnDelta, on_delta)
agent.add_hook(OnDelta, on_delta_later)


@agent.hook("onDelta")
def on_delta_by_name(ctx: OnDelta[Deps]) -> Delta | tuple[Delta, ...] | None:
    return ()


@agent.hook(OnDelta, priority=1, on_error="log")
async def on_delta_by_class(ctx: OnDelta[Deps]) -> Delta | tuple[Delta, ...] | None:
    return ()


# onResponse


def on_response(ctx: OnResponse[Deps]) -> ModelResponse | None:
    return ctx.response.replace(text="Hello.") if ctx.run.deps.name else None


async def on_response_later(ctx: OnResponse[Deps]) -> ModelResponse | None:
    return ctx.response.replace(text="Hello.")


def on_response_narrow(ctx: OnResponse[Deps]) -> None: ...


agent.add_hook("onResponse", on_response)
agent.add_hook("onResponse", on_response_later, timeout=1)
agent.add_hook("onResponse", on_response_narrow)
agent.add_hook("onResponse", lambda ctx: on_response(ctx))
agent.add_hook("onResponse", lambda ctx: ctx.response.replace(text="Hello."))
agent.add_hook(OnResponse, on_response)
agent.add_hook(OnResponse, on_response_later)


@agent.hook("onResponse")
def on_response_by_name(ctx: OnResponse[Deps]) -> ModelResponse | None:
    return ctx.response.replace(text="Hello.")


@agent.hook(OnResponse, priority=1, on_error="log")
async def on_response_by_class(ctx: OnResponse[Deps]) -> ModelResponse | None:
    return ctx.response.replace(text="Hello.")


# preMessage


def pre_message(ctx: PreMessage[Deps]) -> Message | None:
    return ctx.message if ctx.run.deps.name else None


async def pre_message_later(ctx: PreMessage[Deps]) -> Message | None:
    return ctx.message


def pre_message_narrow(ctx: PreMessage[Deps]) -> None: ...


agent.add_hook("preMessage", pre_message)
agent.add_hook("preMessage", pre_message_later, timeout=1)
agent.add_hook("preMessage", pre_message_narrow)
agent.add_hook("preMessage", lambda ctx: pre_message(ctx))
agent.add_hook("preMessage", lambda ctx: ctx.message)
agent.add_hook(PreMessage, pre_message)
agent.add_hook(PreMessage, pre_message_later)


@agent.hook("preMessage")
def pre_message_by_name(ctx: PreMessage[Deps]) -> Message | None:
    return ctx.message


@agent.hook(PreMessage, priority=1, on_error="log")
async def pre_message_by_class(ctx: PreMessage[Deps]) -> Message | None:
    return ctx.message


# onMessage


def on_message(ctx: OnMessage[Deps]) -> None: ...


async def on_message_later(ctx: OnMessage[Deps]) -> None: ...


agent.add_hook("onMessage", on_message)
agent.add_hook("onMessage", on_message_later, timeout=1)
agent.add_hook("onMessage", lambda ctx: on_message(ctx))
agent.add_hook(OnMessage, on_message)
agent.add_hook(OnMessage, on_message_later)


@agent.hook("onMessage")
def on_message_by_name(ctx: OnMessage[Deps]) -> None: ...


@agent.hook(OnMessage, priority=1, on_error="log")
async def on_message_by_class(ctx: OnMessage[Deps]) -> None: ...


# preToolCall


def pre_tool_call(ctx: PreToolCall[Deps]) -> Verdict:
    if ctx.run.deps.number == 0:
        return Ask("sure?")
    if ctx.run.deps.number == 1:
        return ToolResult(1)
    if ctx.run.deps.number == 2:
        return ToolFailure("no")
    if ctx.run.deps.number == 3:
        return Stop("enough")
    return ctx.call.replace(arguments={}) if ctx.run.deps.name else None


async def pre_tool_call_later(ctx: PreToolCall[Deps]) -> Verdict:
    return ctx.call.replace(arguments={})


def pre_tool_call_narrow(ctx: PreToolCall[Deps]) -> None: ...


agent.add_hook("preToolCall", pre_tool_call, tools=["add"])
agent.add_hook("preToolCall", pre_tool_call_later, timeout=1)
agent.add_hook("preToolCall", pre_tool_call_narrow)
agent.add_hook("preToolCall", lambda ctx: pre_tool_call(ctx))
agent.add_hook("preToolCall", lambda ctx: ctx.call.replace(arguments={}))
agent.add_hook(PreToolCall, pre_tool_call)
agent.add_hook(PreToolCall, pre_tool_call_later)


@agent.hook("preToolCall", tools=["add"])
def pre_tool_call_by_name(ctx: PreToolCall[Deps]) -> Verdict:
    return Stop("enough")


@agent.hook(PreToolCall, priority=1, on_error="log")
async def pre_tool_call_by_class(ctx: PreToolCall[Deps]) -> Verdict:
    return Stop("enough")


# aroundToolCall


async def around_tool_call(ctx: AroundToolCall[Deps], proceed: CallProceed) -> CallResult:
    assert_type(await proceed(), CallResult)
    return await proceed(ctx.call)


agent.add_hook("aroundToolCall", around_tool_call, timeout=1)
agent.add_hook("aroundToolCall", lambda ctx, proceed: around_tool_call(ctx, proceed))
agent.add_hook(AroundToolCall, around_tool_call)


@agent.hook("aroundToolCall")
async def around_tool_call_by_name(ctx: AroundToolCall[Deps], proceed: CallProceed) -> CallResult:
    return await proceed()


@agent.hook(AroundToolCall, priority=1, on_error="log")
async def around_tool_call_by_class(ctx: AroundToolCall[Deps], proceed: CallProceed) -> CallResult:
    return await proceed()


# onToolCallResult


def on_tool_call_result(ctx: OnToolCallResult[Deps]) -> CallResult | None:
    if ctx.run.deps.number == 0:
        return ToolFailure("no")
    return ctx.result.replace(value=1) if ctx.run.deps.name else None


async def on_tool_call_result_later(ctx: OnToolCallResult[Deps]) -> CallResult | None:
    return ctx.result.replace(value=1)


def on_tool_call_result_narrow(ctx: OnToolCallResult[Deps]) -> None: ...


agent.add_hook("onToolCallResult", on_tool_call_result, tools=["add"])
agent.add_hook("onToolCallResult", on_tool_call_result_later, timeout=1)
agent.add_hook("onToolCallResult", on_tool_call_result_narrow)
agent.add_hook("onToolCallResult", lambda ctx: on_tool_call_result(ctx))
agent.add_hook("onToolCallResult", lambda ctx: ctx.result.replace(value=1))
agent.add_hook(OnToolCallResult, on_tool_call_result)
agent.add_hook(OnToolCallResult, on_tool_call_result_later)


@agent.hook("onToolCallResult", tools=["add"])
def on_tool_call_result_by_name(ctx: OnToolCallResult[Deps]) -> CallResult | None:
    return ToolFailure("no")


@agent.hook(OnToolCallResult, priority=1, on_error="log")
async def on_tool_call_result_by_class(ctx: OnToolCallResult[Deps]) -> CallResult | None:
    return ToolFailure("no")


# onToolCallError


def on_tool_call_error(ctx: OnToolCallError[Deps]) -> CallResult | Stop | None:
    if ctx.run.deps.number == 0:
        return ToolResult(1)
    if ctx.run.deps.number == 1:
        return Stop("enough")
    return ctx.error if ctx.run.deps.name else None


async def on_tool_call_error_later(ctx: OnToolCallError[Deps]) -> CallResult | Stop | None:
    return ctx.error


def on_tool_call_error_narrow(ctx: OnToolCallError[Deps]) -> None: ...


agent.add_hook("onToolCallError", on_tool_call_error, tools=["add"])
agent.add_hook("onToolCallError", on_tool_call_error_later, timeout=1)
agent.add_hook("onToolCallError", on_tool_call_error_narrow)
agent.add_hook("onToolCallError", lambda ctx: on_tool_call_error(ctx))
agent.add_hook("onToolCallError", lambda ctx: ctx.error)
agent.add_hook(OnToolCallError, on_tool_call_error)
agent.add_hook(OnToolCallError, on_tool_call_error_later)


@agent.hook("onToolCallError", tools=["add"])
def on_tool_call_error_by_name(ctx: OnToolCallError[Deps]) -> CallResult | Stop | None:
    return Stop("enough")


@agent.hook(OnToolCallError, priority=1, on_error="log")
async def on_tool_call_error_by_class(ctx: OnToolCallError[Deps]) -> CallResult | Stop | None:
    return Stop("enough")


# onStep


def on_step(ctx: OnStep[Deps]) -> Stop | None:
    return Stop("enough") if ctx.run.deps.name else None


async def on_step_later(ctx: OnStep[Deps]) -> Stop | None:
    return Stop("enough")


def on_step_narrow(ctx: OnStep[Deps]) -> None: ...


agent.add_hook("onStep", on_step)
agent.add_hook("onStep", on_step_later, timeout=1)
agent.add_hook("onStep", on_step_narrow)
agent.add_hook("onStep", lambda ctx: on_step(ctx))
agent.add_hook("onStep", lambda ctx: Stop("enough"))
agent.add_hook(OnStep, on_step)
agent.add_hook(OnStep, on_step_later)


@agent.hook("onStep")
def on_step_by_name(ctx: OnStep[Deps]) -> Stop | None:
    return Stop("enough")


@agent.hook(OnStep, priority=1, on_error="log")
async def on_step_by_class(ctx: OnStep[Deps]) -> Stop | None:
    return Stop("enough")


# preSteer


def pre_steer(ctx: PreSteer[Deps]) -> UserMessage | Hold | Deny | None:
    return Hold() if ctx.when == "idle" else ctx.message


async def pre_steer_later(ctx: PreSteer[Deps]) -> UserMessage | Hold | Deny | None:
    return Deny("no")


def pre_steer_narrow(ctx: PreSteer[Deps]) -> None: ...


agent.add_hook("preSteer", pre_steer)
agent.add_hook("preSteer", pre_steer_later, timeout=1)
agent.add_hook("preSteer", pre_steer, early=True)
agent.add_hook("preSteer", pre_steer_narrow)
agent.add_hook("preSteer", lambda ctx: pre_steer(ctx))
agent.add_hook("preSteer", lambda ctx: Deny("no"))
agent.add_hook(PreSteer, pre_steer)
agent.add_hook(PreSteer, pre_steer_later)


@agent.hook("preSteer")
def pre_steer_by_name(ctx: PreSteer[Deps]) -> UserMessage | Hold | Deny | None:
    return Deny("no")


@agent.hook(PreSteer, priority=1, on_error="log")
async def pre_steer_by_class(ctx: PreSteer[Deps]) -> UserMessage | Hold | Deny | None:
    return Deny("no")


# preCompact


def pre_compact(ctx: PreCompact[Deps]) -> Compaction | Deny | None:
    return ctx.compaction.replace(text=ctx.hook)


async def pre_compact_later(ctx: PreCompact[Deps]) -> Compaction | Deny | None:
    return Deny("no")


def pre_compact_narrow(ctx: PreCompact[Deps]) -> None: ...


agent.add_hook("preCompact", pre_compact)
agent.add_hook("preCompact", pre_compact_later, timeout=1)
agent.add_hook("preCompact", pre_compact_narrow)
agent.add_hook("preCompact", lambda ctx: pre_compact(ctx))
agent.add_hook("preCompact", lambda ctx: Deny("no"))
agent.add_hook(PreCompact, pre_compact)
agent.add_hook(PreCompact, pre_compact_later)


@agent.hook("preCompact")
def pre_compact_by_name(ctx: PreCompact[Deps]) -> Compaction | Deny | None:
    return Deny("no")


@agent.hook(PreCompact, priority=1, on_error="log")
async def pre_compact_by_class(ctx: PreCompact[Deps]) -> Compaction | Deny | None:
    return Deny("no")


# preStop


def pre_stop(ctx: PreStop[Deps]) -> Continue | None:
    return Continue("go on") if ctx.run.deps.name else None


async def pre_stop_later(ctx: PreStop[Deps]) -> Continue | None:
    return Continue("go on")


def pre_stop_narrow(ctx: PreStop[Deps]) -> None: ...


agent.add_hook("preStop", pre_stop)
agent.add_hook("preStop", pre_stop_later, timeout=1)
agent.add_hook("preStop", pre_stop_narrow)
agent.add_hook("preStop", lambda ctx: pre_stop(ctx))
agent.add_hook("preStop", lambda ctx: Continue("go on"))
agent.add_hook(PreStop, pre_stop)
agent.add_hook(PreStop, pre_stop_later)


@agent.hook("preStop")
def pre_stop_by_name(ctx: PreStop[Deps]) -> Continue | None:
    return Continue("go on")


@agent.hook(PreStop, priority=1, on_error="log")
async def pre_stop_by_class(ctx: PreStop[Deps]) -> Continue | None:
    return Continue("go on")


# onChatDone


def on_chat_done(ctx: OnChatDone[Deps]) -> None: ...


async def on_chat_done_later(ctx: OnChatDone[Deps]) -> None: ...


agent.add_hook("onChatDone", on_chat_done)
agent.add_hook("onChatDone", on_chat_done_later, timeout=1)
agent.add_hook("onChatDone", lambda ctx: on_chat_done(ctx))
agent.add_hook(OnChatDone, on_chat_done)
agent.add_hook(OnChatDone, on_chat_done_later)


@agent.hook("onChatDone")
def on_chat_done_by_name(ctx: OnChatDone[Deps]) -> None: ...


@agent.hook(OnChatDone, priority=1, on_error="log")
async def on_chat_done_by_class(ctx: OnChatDone[Deps]) -> None: ...


# onChatAbort


def on_chat_abort(ctx: OnChatAbort[Deps]) -> None: ...


async def on_chat_abort_later(ctx: OnChatAbort[Deps]) -> None: ...


agent.add_hook("onChatAbort", on_chat_abort)
agent.add_hook("onChatAbort", on_chat_abort_later, timeout=1)
agent.add_hook("onChatAbort", lambda ctx: on_chat_abort(ctx))
agent.add_hook(OnChatAbort, on_chat_abort)
agent.add_hook(OnChatAbort, on_chat_abort_later)


@agent.hook("onChatAbort")
def on_chat_abort_by_name(ctx: OnChatAbort[Deps]) -> None: ...


@agent.hook(OnChatAbort, priority=1, on_error="log")
async def on_chat_abort_by_class(ctx: OnChatAbort[Deps]) -> None: ...


# onChatError


def on_chat_error(ctx: OnChatError[Deps]) -> None: ...


async def on_chat_error_later(ctx: OnChatError[Deps]) -> None: ...


agent.add_hook("onChatError", on_chat_error)
agent.add_hook("onChatError", on_chat_error_later, timeout=1)
agent.add_hook("onChatError", lambda ctx: on_chat_error(ctx))
agent.add_hook(OnChatError, on_chat_error)
agent.add_hook(OnChatError, on_chat_error_later)


@agent.hook("onChatError")
def on_chat_error_by_name(ctx: OnChatError[Deps]) -> None: ...


@agent.hook(OnChatError, priority=1, on_error="log")
async def on_chat_error_by_class(ctx: OnChatError[Deps]) -> None: ...


# onChatEnd


def on_chat_end(ctx: OnChatEnd[Deps]) -> None: ...


async def on_chat_end_later(ctx: OnChatEnd[Deps]) -> None: ...


agent.add_hook("onChatEnd", on_chat_end)
agent.add_hook("onChatEnd", on_chat_end_later, timeout=1)
agent.add_hook("onChatEnd", lambda ctx: on_chat_end(ctx))
agent.add_hook(OnChatEnd, on_chat_end)
agent.add_hook(OnChatEnd, on_chat_end_later)


@agent.hook("onChatEnd")
def on_chat_end_by_name(ctx: OnChatEnd[Deps]) -> None: ...


@agent.hook(OnChatEnd, priority=1, on_error="log")
async def on_chat_end_by_class(ctx: OnChatEnd[Deps]) -> None: ...


# onStatus


def on_status(ctx: OnStatus[Deps]) -> None: ...


async def on_status_later(ctx: OnStatus[Deps]) -> None: ...


agent.add_hook("onStatus", on_status)
agent.add_hook("onStatus", on_status_later, timeout=1)
agent.add_hook("onStatus", lambda ctx: on_status(ctx))
agent.add_hook(OnStatus, on_status)
agent.add_hook(OnStatus, on_status_later)


@agent.hook("onStatus")
def on_status_by_name(ctx: OnStatus[Deps]) -> None: ...


@agent.hook(OnStatus, priority=1, on_error="log")
async def on_status_by_class(ctx: OnStatus[Deps]) -> None: ...


# onApproval


def on_approval(ctx: OnApproval[Deps]) -> None: ...


async def on_approval_later(ctx: OnApproval[Deps]) -> None: ...


agent.add_hook("onApproval", on_approval)
agent.add_hook("onApproval", on_approval_later, timeout=1)
agent.add_hook("onApproval", lambda ctx: on_approval(ctx))
agent.add_hook(OnApproval, on_approval)
agent.add_hook(OnApproval, on_approval_later)


@agent.hook("onApproval")
def on_approval_by_name(ctx: OnApproval[Deps]) -> None: ...


@agent.hook(OnApproval, priority=1, on_error="log")
async def on_approval_by_class(ctx: OnApproval[Deps]) -> None: ...


# preMessageUpdate


def pre_message_update(ctx: PreMessageUpdate[Deps]) -> MessageChanges | None:
    return ctx.changes if ctx.run.deps.name else None


async def pre_message_update_later(ctx: PreMessageUpdate[Deps]) -> MessageChanges | None:
    return ctx.changes


agent.add_hook("preMessageUpdate", pre_message_update)
agent.add_hook("preMessageUpdate", pre_message_update_later, timeout=1)
agent.add_hook("preMessageUpdate", lambda ctx: ctx.changes)
agent.add_hook(PreMessageUpdate, pre_message_update)
agent.add_hook(PreMessageUpdate, pre_message_update_later)


@agent.hook("preMessageUpdate")
def pre_message_update_by_name(ctx: PreMessageUpdate[Deps]) -> MessageChanges | None:
    return ctx.changes


@agent.hook(PreMessageUpdate, priority=1, on_error="log")
async def pre_message_update_by_class(ctx: PreMessageUpdate[Deps]) -> MessageChanges | None:
    return ctx.changes


# onMessageUpdate


def on_message_update(ctx: OnMessageUpdate[Deps]) -> None: ...


async def on_message_update_later(ctx: OnMessageUpdate[Deps]) -> None: ...


agent.add_hook("onMessageUpdate", on_message_update)
agent.add_hook("onMessageUpdate", on_message_update_later, timeout=1)
agent.add_hook("onMessageUpdate", lambda ctx: on_message_update(ctx))
agent.add_hook(OnMessageUpdate, on_message_update)
agent.add_hook(OnMessageUpdate, on_message_update_later)


@agent.hook("onMessageUpdate")
def on_message_update_by_name(ctx: OnMessageUpdate[Deps]) -> None: ...


@agent.hook(OnMessageUpdate, priority=1, on_error="log")
async def on_message_update_by_class(ctx: OnMessageUpdate[Deps]) -> None: ...


# onScopeRegister


def on_scope_register(ctx: OnScopeRegister) -> None: ...


async def on_scope_register_later(ctx: OnScopeRegister) -> None: ...


agent.add_hook("onScopeRegister", on_scope_register)
agent.add_hook("onScopeRegister", on_scope_register_later, timeout=1)
agent.add_hook("onScopeRegister", lambda ctx: on_scope_register(ctx))
agent.add_hook(OnScopeRegister, on_scope_register)
agent.add_hook(OnScopeRegister, on_scope_register_later)


@agent.hook("onScopeRegister")
def on_scope_register_by_name(ctx: OnScopeRegister) -> None: ...


@agent.hook(OnScopeRegister, priority=1, on_error="log")
async def on_scope_register_by_class(ctx: OnScopeRegister) -> None: ...


# onScopeUnregister


def on_scope_unregister(ctx: OnScopeUnregister) -> None: ...


async def on_scope_unregister_later(ctx: OnScopeUnregister) -> None: ...


agent.add_hook("onScopeUnregister", on_scope_unregister)
agent.add_hook("onScopeUnregister", on_scope_unregister_later, timeout=1)
agent.add_hook("onScopeUnregister", lambda ctx: on_scope_unregister(ctx))
agent.add_hook(OnScopeUnregister, on_scope_unregister)
agent.add_hook(OnScopeUnregister, on_scope_unregister_later)


@agent.hook("onScopeUnregister")
def on_scope_unregister_by_name(ctx: OnScopeUnregister) -> None: ...


@agent.hook(OnScopeUnregister, priority=1, on_error="log")
async def on_scope_unregister_by_class(ctx: OnScopeUnregister) -> None: ...


# onHook


def on_hook(ctx: OnHook[Deps]) -> None: ...


async def on_hook_later(ctx: OnHook[Deps]) -> None: ...


agent.add_hook("onHook", on_hook)
agent.add_hook("onHook", on_hook_later, timeout=1)
agent.add_hook("onHook", lambda ctx: on_hook(ctx))
agent.add_hook(OnHook, on_hook)
agent.add_hook(OnHook, on_hook_later)


@agent.hook("onHook")
def on_hook_by_name(ctx: OnHook[Deps]) -> None: ...


@agent.hook(OnHook, priority=1, on_error="log")
async def on_hook_by_class(ctx: OnHook[Deps]) -> None: ...


# ── wrong handlers: each line that a checker must refuse ───────────────────────────────────────


# aroundChat

agent.add_hook("aroundChat", around_request)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(AroundChat, around_request)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("aroundChat", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def around_chat_sync(ctx: AroundChat[Deps], proceed: ChatProceed) -> Response:
    raise NotImplementedError


agent.add_hook("aroundChat", around_chat_sync)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(AroundChat, around_chat_sync)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


async def around_chat_nothing(ctx: AroundChat[Deps], proceed: ChatProceed) -> None: ...


agent.add_hook("aroundChat", around_chat_nothing)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(AroundChat, around_chat_nothing)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


async def around_chat_deps(ctx: AroundChat[OtherDeps], proceed: ChatProceed) -> Response:
    return await proceed()


agent.add_hook("aroundChat", around_chat_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(AroundChat, around_chat_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("aroundChat", around_chat, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("aroundChat", around_chat, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("aroundChat")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def around_chat_sync_decorated(ctx: AroundChat[Deps], proceed: ChatProceed) -> Response:
    raise NotImplementedError


@agent.hook(AroundChat)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
async def around_chat_deps_decorated(ctx: AroundChat[OtherDeps], proceed: ChatProceed) -> Response:
    return await proceed()


# onChatStart

agent.add_hook("onChatStart", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnChatStart, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onChatStart", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("onChatStart", on_chat_start, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onChatStart", on_chat_start, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def on_chat_start_deps(ctx: OnChatStart[OtherDeps]) -> None: ...


agent.add_hook("onChatStart", on_chat_start_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnChatStart, on_chat_start_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("onChatStart")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def on_chat_start_context_decorated(ctx: OnMessage[Deps]) -> None: ...


# preChat

agent.add_hook("preChat", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreChat, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preChat", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("preChat", pre_chat, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preChat", pre_chat, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def pre_chat_deps(ctx: PreChat[OtherDeps]) -> None: ...


agent.add_hook("preChat", pre_chat_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreChat, pre_chat_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


def pre_chat_wrong(ctx: PreChat[Deps]) -> int:
    return 1


async def pre_chat_wrong_later(ctx: PreChat[Deps]) -> int:
    return 1


agent.add_hook("preChat", pre_chat_wrong)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preChat", pre_chat_wrong_later)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preChat", lambda ctx: 1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreChat, pre_chat_wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreChat, pre_chat_wrong_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("preChat")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def pre_chat_context_decorated(ctx: OnMessage[Deps]) -> None: ...


@agent.hook("preChat")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def pre_chat_wrong_decorated(ctx: PreChat[Deps]) -> int:
    return 1


@agent.hook(PreChat)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def pre_chat_wrong_decorated_later(ctx: PreChat[Deps]) -> int:
    return 1


# preRequest

agent.add_hook("preRequest", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreRequest, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preRequest", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("preRequest", pre_request, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preRequest", pre_request, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def pre_request_deps(ctx: PreRequest[OtherDeps]) -> None: ...


agent.add_hook("preRequest", pre_request_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreRequest, pre_request_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


def pre_request_wrong(ctx: PreRequest[Deps]) -> int:
    return 1


async def pre_request_wrong_later(ctx: PreRequest[Deps]) -> int:
    return 1


agent.add_hook("preRequest", pre_request_wrong)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preRequest", pre_request_wrong_later)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preRequest", lambda ctx: 1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreRequest, pre_request_wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreRequest, pre_request_wrong_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("preRequest")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def pre_request_context_decorated(ctx: OnMessage[Deps]) -> None: ...


@agent.hook("preRequest")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def pre_request_wrong_decorated(ctx: PreRequest[Deps]) -> int:
    return 1


@agent.hook(PreRequest)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def pre_request_wrong_decorated_later(ctx: PreRequest[Deps]) -> int:
    return 1


# aroundRequest

agent.add_hook("aroundRequest", around_chat)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(AroundRequest, around_chat)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("aroundRequest", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def around_request_sync(ctx: AroundRequest[Deps], proceed: RequestProceed) -> ModelResponse:
    raise NotImplementedError


agent.add_hook("aroundRequest", around_request_sync)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(AroundRequest, around_request_sync)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


async def around_request_nothing(ctx: AroundRequest[Deps], proceed: RequestProceed) -> None: ...


agent.add_hook("aroundRequest", around_request_nothing)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(AroundRequest, around_request_nothing)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


async def around_request_deps(
    ctx: AroundRequest[OtherDeps], proceed: RequestProceed
) -> ModelResponse:
    return await proceed()


agent.add_hook("aroundRequest", around_request_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(AroundRequest, around_request_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("aroundRequest", around_request, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("aroundRequest", around_request, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("aroundRequest")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def around_request_sync_decorated(
    ctx: AroundRequest[Deps], proceed: RequestProceed
) -> ModelResponse:
    raise NotImplementedError


@agent.hook(AroundRequest)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
async def around_request_deps_decorated(
    ctx: AroundRequest[OtherDeps], proceed: RequestProceed
) -> ModelResponse:
    return await proceed()


# onDelta

agent.add_hook("onDelta", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnDelta, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onDelta", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("onDelta", on_delta, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onDelta", on_delta, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def on_delta_deps(ctx: OnDelta[OtherDeps]) -> None: ...


agent.add_hook("onDelta", on_delta_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnDelta, on_delta_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


def on_delta_wrong(ctx: OnDelta[Deps]) -> int:
    return 1


async def on_delta_wrong_later(ctx: OnDelta[Deps]) -> int:
    return 1


agent.add_hook("onDelta", on_delta_wrong)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onDelta", on_delta_wrong_later)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onDelta", lambda ctx: 1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnDelta, on_delta_wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnDelta, on_delta_wrong_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("onDelta")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def on_delta_context_decorated(ctx: OnMessage[Deps]) -> None: ...


@agent.hook("onDelta")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def on_delta_wrong_decorated(ctx: OnDelta[Deps]) -> int:
    return 1


@agent.hook(OnDelta)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def on_delta_wrong_decorated_later(ctx: OnDelta[Deps]) -> int:
    return 1


# onResponse

agent.add_hook("onResponse", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnResponse, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onResponse", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("onResponse", on_response, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onResponse", on_response, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def on_response_deps(ctx: OnResponse[OtherDeps]) -> None: ...


agent.add_hook("onResponse", on_response_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnResponse, on_response_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


def on_response_wrong(ctx: OnResponse[Deps]) -> int:
    return 1


async def on_response_wrong_later(ctx: OnResponse[Deps]) -> int:
    return 1


agent.add_hook("onResponse", on_response_wrong)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onResponse", on_response_wrong_later)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onResponse", lambda ctx: 1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnResponse, on_response_wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnResponse, on_response_wrong_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("onResponse")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def on_response_context_decorated(ctx: OnMessage[Deps]) -> None: ...


@agent.hook("onResponse")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def on_response_wrong_decorated(ctx: OnResponse[Deps]) -> int:
    return 1


@agent.hook(OnResponse)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def on_response_wrong_decorated_later(ctx: OnResponse[Deps]) -> int:
    return 1


# preMessage

agent.add_hook("preMessage", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreMessage, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preMessage", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("preMessage", pre_message, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preMessage", pre_message, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def pre_message_deps(ctx: PreMessage[OtherDeps]) -> None: ...


agent.add_hook("preMessage", pre_message_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreMessage, pre_message_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


def pre_message_wrong(ctx: PreMessage[Deps]) -> int:
    return 1


async def pre_message_wrong_later(ctx: PreMessage[Deps]) -> int:
    return 1


agent.add_hook("preMessage", pre_message_wrong)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preMessage", pre_message_wrong_later)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preMessage", lambda ctx: 1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreMessage, pre_message_wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreMessage, pre_message_wrong_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("preMessage")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def pre_message_context_decorated(ctx: OnMessage[Deps]) -> None: ...


@agent.hook("preMessage")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def pre_message_wrong_decorated(ctx: PreMessage[Deps]) -> int:
    return 1


@agent.hook(PreMessage)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def pre_message_wrong_decorated_later(ctx: PreMessage[Deps]) -> int:
    return 1


# onMessage

agent.add_hook("onMessage", on_chat_start)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnMessage, on_chat_start)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onMessage", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("onMessage", on_message, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onMessage", on_message, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def on_message_deps(ctx: OnMessage[OtherDeps]) -> None: ...


agent.add_hook("onMessage", on_message_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnMessage, on_message_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("onMessage")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def on_message_context_decorated(ctx: OnChatStart[Deps]) -> None: ...


# preToolCall

agent.add_hook("preToolCall", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreToolCall, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preToolCall", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]


def pre_tool_call_deps(ctx: PreToolCall[OtherDeps]) -> None: ...


agent.add_hook("preToolCall", pre_tool_call_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreToolCall, pre_tool_call_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


def pre_tool_call_wrong(ctx: PreToolCall[Deps]) -> int:
    return 1


async def pre_tool_call_wrong_later(ctx: PreToolCall[Deps]) -> int:
    return 1


agent.add_hook("preToolCall", pre_tool_call_wrong)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preToolCall", pre_tool_call_wrong_later)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preToolCall", lambda ctx: 1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreToolCall, pre_tool_call_wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreToolCall, pre_tool_call_wrong_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("preToolCall")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def pre_tool_call_context_decorated(ctx: OnMessage[Deps]) -> None: ...


@agent.hook("preToolCall")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def pre_tool_call_wrong_decorated(ctx: PreToolCall[Deps]) -> int:
    return 1


@agent.hook(PreToolCall)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def pre_tool_call_wrong_decorated_later(ctx: PreToolCall[Deps]) -> int:
    return 1


# aroundToolCall

agent.add_hook("aroundToolCall", around_request)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(AroundToolCall, around_request)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("aroundToolCall", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def around_tool_call_sync(ctx: AroundToolCall[Deps], proceed: CallProceed) -> CallResult:
    raise NotImplementedError


agent.add_hook("aroundToolCall", around_tool_call_sync)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(AroundToolCall, around_tool_call_sync)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


async def around_tool_call_nothing(ctx: AroundToolCall[Deps], proceed: CallProceed) -> None: ...


agent.add_hook("aroundToolCall", around_tool_call_nothing)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(AroundToolCall, around_tool_call_nothing)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


async def around_tool_call_deps(ctx: AroundToolCall[OtherDeps], proceed: CallProceed) -> CallResult:
    return await proceed()


agent.add_hook("aroundToolCall", around_tool_call_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(AroundToolCall, around_tool_call_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("aroundToolCall", around_tool_call, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("aroundToolCall", around_tool_call, guard=True)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


@agent.hook("aroundToolCall")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def around_tool_call_sync_decorated(ctx: AroundToolCall[Deps], proceed: CallProceed) -> CallResult:
    raise NotImplementedError


@agent.hook(AroundToolCall)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
async def around_tool_call_deps_decorated(
    ctx: AroundToolCall[OtherDeps], proceed: CallProceed
) -> CallResult:
    return await proceed()


# onToolCallResult

agent.add_hook("onToolCallResult", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnToolCallResult, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onToolCallResult", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("onToolCallResult", on_tool_call_result, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def on_tool_call_result_deps(ctx: OnToolCallResult[OtherDeps]) -> None: ...


agent.add_hook("onToolCallResult", on_tool_call_result_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnToolCallResult, on_tool_call_result_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


def on_tool_call_result_wrong(ctx: OnToolCallResult[Deps]) -> int:
    return 1


async def on_tool_call_result_wrong_later(ctx: OnToolCallResult[Deps]) -> int:
    return 1


agent.add_hook("onToolCallResult", on_tool_call_result_wrong)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onToolCallResult", on_tool_call_result_wrong_later)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onToolCallResult", lambda ctx: 1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnToolCallResult, on_tool_call_result_wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnToolCallResult, on_tool_call_result_wrong_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("onToolCallResult")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def on_tool_call_result_context_decorated(ctx: OnMessage[Deps]) -> None: ...


@agent.hook("onToolCallResult")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def on_tool_call_result_wrong_decorated(ctx: OnToolCallResult[Deps]) -> int:
    return 1


@agent.hook(OnToolCallResult)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def on_tool_call_result_wrong_decorated_later(ctx: OnToolCallResult[Deps]) -> int:
    return 1


# onToolCallError

agent.add_hook("onToolCallError", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnToolCallError, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onToolCallError", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("onToolCallError", on_tool_call_error, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def on_tool_call_error_deps(ctx: OnToolCallError[OtherDeps]) -> None: ...


agent.add_hook("onToolCallError", on_tool_call_error_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnToolCallError, on_tool_call_error_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


def on_tool_call_error_wrong(ctx: OnToolCallError[Deps]) -> int:
    return 1


async def on_tool_call_error_wrong_later(ctx: OnToolCallError[Deps]) -> int:
    return 1


agent.add_hook("onToolCallError", on_tool_call_error_wrong)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onToolCallError", on_tool_call_error_wrong_later)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onToolCallError", lambda ctx: 1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnToolCallError, on_tool_call_error_wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnToolCallError, on_tool_call_error_wrong_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("onToolCallError")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def on_tool_call_error_context_decorated(ctx: OnMessage[Deps]) -> None: ...


@agent.hook("onToolCallError")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def on_tool_call_error_wrong_decorated(ctx: OnToolCallError[Deps]) -> int:
    return 1


@agent.hook(OnToolCallError)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def on_tool_call_error_wrong_decorated_later(ctx: OnToolCallError[Deps]) -> int:
    return 1


# onStep

agent.add_hook("onStep", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnStep, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onStep", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("onStep", on_step, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onStep", on_step, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def on_step_deps(ctx: OnStep[OtherDeps]) -> None: ...


agent.add_hook("onStep", on_step_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnStep, on_step_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


def on_step_wrong(ctx: OnStep[Deps]) -> int:
    return 1


async def on_step_wrong_later(ctx: OnStep[Deps]) -> int:
    return 1


agent.add_hook("onStep", on_step_wrong)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onStep", on_step_wrong_later)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onStep", lambda ctx: 1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnStep, on_step_wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnStep, on_step_wrong_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("onStep")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def on_step_context_decorated(ctx: OnMessage[Deps]) -> None: ...


@agent.hook("onStep")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def on_step_wrong_decorated(ctx: OnStep[Deps]) -> int:
    return 1


@agent.hook(OnStep)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def on_step_wrong_decorated_later(ctx: OnStep[Deps]) -> int:
    return 1


# preSteer

agent.add_hook("preSteer", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreSteer, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preSteer", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("preSteer", pre_steer, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preSteer", pre_steer, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def pre_steer_deps(ctx: PreSteer[OtherDeps]) -> None: ...


agent.add_hook("preSteer", pre_steer_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreSteer, pre_steer_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


def pre_steer_wrong(ctx: PreSteer[Deps]) -> int:
    return 1


async def pre_steer_wrong_later(ctx: PreSteer[Deps]) -> int:
    return 1


agent.add_hook("preSteer", pre_steer_wrong)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preSteer", pre_steer_wrong_later)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preSteer", lambda ctx: 1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreSteer, pre_steer_wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreSteer, pre_steer_wrong_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("preSteer")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def pre_steer_context_decorated(ctx: OnMessage[Deps]) -> None: ...


@agent.hook("preSteer")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def pre_steer_wrong_decorated(ctx: PreSteer[Deps]) -> int:
    return 1


@agent.hook(PreSteer)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def pre_steer_wrong_decorated_later(ctx: PreSteer[Deps]) -> int:
    return 1


# preCompact

agent.add_hook("preCompact", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreCompact, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preCompact", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("preCompact", pre_compact, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preCompact", pre_compact, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def pre_compact_deps(ctx: PreCompact[OtherDeps]) -> None: ...


agent.add_hook("preCompact", pre_compact_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreCompact, pre_compact_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


def pre_compact_wrong(ctx: PreCompact[Deps]) -> int:
    return 1


async def pre_compact_wrong_later(ctx: PreCompact[Deps]) -> int:
    return 1


agent.add_hook("preCompact", pre_compact_wrong)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preCompact", pre_compact_wrong_later)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preCompact", lambda ctx: 1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreCompact, pre_compact_wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreCompact, pre_compact_wrong_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("preCompact")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def pre_compact_context_decorated(ctx: OnMessage[Deps]) -> None: ...


@agent.hook("preCompact")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def pre_compact_wrong_decorated(ctx: PreCompact[Deps]) -> int:
    return 1


@agent.hook(PreCompact)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def pre_compact_wrong_decorated_later(ctx: PreCompact[Deps]) -> int:
    return 1


# preStop

agent.add_hook("preStop", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreStop, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preStop", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("preStop", pre_stop, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preStop", pre_stop, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def pre_stop_deps(ctx: PreStop[OtherDeps]) -> None: ...


agent.add_hook("preStop", pre_stop_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreStop, pre_stop_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


def pre_stop_wrong(ctx: PreStop[Deps]) -> int:
    return 1


async def pre_stop_wrong_later(ctx: PreStop[Deps]) -> int:
    return 1


agent.add_hook("preStop", pre_stop_wrong)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preStop", pre_stop_wrong_later)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preStop", lambda ctx: 1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreStop, pre_stop_wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreStop, pre_stop_wrong_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("preStop")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def pre_stop_context_decorated(ctx: OnMessage[Deps]) -> None: ...


@agent.hook("preStop")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def pre_stop_wrong_decorated(ctx: PreStop[Deps]) -> int:
    return 1


@agent.hook(PreStop)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
async def pre_stop_wrong_decorated_later(ctx: PreStop[Deps]) -> int:
    return 1


# onChatDone

agent.add_hook("onChatDone", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnChatDone, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onChatDone", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("onChatDone", on_chat_done, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onChatDone", on_chat_done, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def on_chat_done_deps(ctx: OnChatDone[OtherDeps]) -> None: ...


agent.add_hook("onChatDone", on_chat_done_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnChatDone, on_chat_done_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("onChatDone")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def on_chat_done_context_decorated(ctx: OnMessage[Deps]) -> None: ...


# onChatAbort

agent.add_hook("onChatAbort", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnChatAbort, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onChatAbort", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("onChatAbort", on_chat_abort, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onChatAbort", on_chat_abort, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def on_chat_abort_deps(ctx: OnChatAbort[OtherDeps]) -> None: ...


agent.add_hook("onChatAbort", on_chat_abort_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnChatAbort, on_chat_abort_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("onChatAbort")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def on_chat_abort_context_decorated(ctx: OnMessage[Deps]) -> None: ...


# onChatError

agent.add_hook("onChatError", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnChatError, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onChatError", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("onChatError", on_chat_error, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onChatError", on_chat_error, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def on_chat_error_deps(ctx: OnChatError[OtherDeps]) -> None: ...


agent.add_hook("onChatError", on_chat_error_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnChatError, on_chat_error_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("onChatError")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def on_chat_error_context_decorated(ctx: OnMessage[Deps]) -> None: ...


# onChatEnd

agent.add_hook("onChatEnd", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnChatEnd, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onChatEnd", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("onChatEnd", on_chat_end, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onChatEnd", on_chat_end, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def on_chat_end_deps(ctx: OnChatEnd[OtherDeps]) -> None: ...


agent.add_hook("onChatEnd", on_chat_end_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnChatEnd, on_chat_end_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("onChatEnd")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def on_chat_end_context_decorated(ctx: OnMessage[Deps]) -> None: ...


# onStatus

agent.add_hook("onStatus", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnStatus, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onStatus", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("onStatus", on_status, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onStatus", on_status, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def on_status_deps(ctx: OnStatus[OtherDeps]) -> None: ...


agent.add_hook("onStatus", on_status_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnStatus, on_status_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("onStatus")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def on_status_context_decorated(ctx: OnMessage[Deps]) -> None: ...


# onApproval

agent.add_hook("onApproval", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnApproval, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onApproval", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("onApproval", on_approval, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onApproval", on_approval, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def on_approval_deps(ctx: OnApproval[OtherDeps]) -> None: ...


agent.add_hook("onApproval", on_approval_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnApproval, on_approval_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("onApproval")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def on_approval_context_decorated(ctx: OnMessage[Deps]) -> None: ...


# preMessageUpdate

agent.add_hook("preMessageUpdate", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(PreMessageUpdate, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preMessageUpdate", lambda ctx: ctx.message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


# onMessageUpdate

agent.add_hook("onMessageUpdate", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnMessageUpdate, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


# onScopeRegister

agent.add_hook("onScopeRegister", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnScopeRegister, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onScopeRegister", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("onScopeRegister", on_scope_register, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onScopeRegister", on_scope_register, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("onScopeRegister")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def on_scope_register_context_decorated(ctx: OnMessage[Deps]) -> None: ...


# onScopeUnregister

agent.add_hook("onScopeUnregister", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnScopeUnregister, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onScopeUnregister", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("onScopeUnregister", on_scope_unregister, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onScopeUnregister", on_scope_unregister, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("onScopeUnregister")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def on_scope_unregister_context_decorated(ctx: OnMessage[Deps]) -> None: ...


# onHook

agent.add_hook("onHook", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnHook, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onHook", lambda ctx: ctx.no_such_field)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]
agent.add_hook("onHook", on_hook, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onHook", on_hook, tools=["add"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def on_hook_deps(ctx: OnHook[OtherDeps]) -> None: ...


agent.add_hook("onHook", on_hook_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(OnHook, on_hook_deps)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("onHook")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def on_hook_context_decorated(ctx: OnMessage[Deps]) -> None: ...


# ── options, unknown points, disposers ──────────────────────────────────────────────────────

agent.add_hook("onMesage", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook(int, on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onMessage", on_message, prio=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
agent.add_hook("onMessage", on_message, on_error="ignore")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("onMessage", 3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
agent.add_hook("preToolCall", pre_tool_call, tools=[1])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


@agent.hook("onMesage")  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def unknown(ctx: OnMessage[Deps]) -> None: ...


@agent.hook("onMessage", tools=["add"])  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def with_tools(ctx: OnMessage[Deps]) -> None: ...


agent.add_hook("preToolCall", pre_tool_call, on_error="deny", tools=("add",), timeout=None)
agent.add_hook("onMessage", on_message, priority=200, name="audit", inherit=True, timeout=0.5)
assert_type(agent.add_hook("onMessage", on_message), Disposer)
with agent.add_hook("onMessage", on_message) as disposer:
    assert_type(disposer, Disposer)


# ── a decorated function stays what it was ──────────────────────────────────────────────────

on_message_by_name("not a context")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
pre_chat_by_name(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def decorated(start: OnChatStart[Deps], chat: PreChat[Deps]) -> None:
    await on_chat_start_by_class(start)
    assert_type(pre_chat_by_name(chat), ChatRequest | ModelResponse | Stop | None)
    assert_type(await pre_chat_by_class(chat), ChatRequest | ModelResponse | Stop | None)


# ── deps ────────────────────────────────────────────────────────────────────────────────────


def any_deps(ctx: OnMessage[Any]) -> None: ...


def bare(ctx: OnMessage) -> None: ...


def base_deps(ctx: OnMessage[object]) -> None: ...


def reads(ctx: OnMessage[Deps]) -> None:
    assert_type(ctx.run.deps, Deps)
    print(ctx.run.deps.other)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]
    ctx.message = ctx.message  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    ctx.run.deps = Deps()  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


agent.add_hook("onMessage", any_deps)
agent.add_hook("onMessage", bare)
agent.add_hook("onMessage", base_deps)
agent.add_hook("onMessage", reads)
agent.add_hook("onMessage", lambda ctx: ctx.run.deps.name)
agent.add_hook("onMessage", lambda ctx: ctx.run.deps.other)  # type: ignore[call-overload]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]

no_deps = Agent(any_model())
Agent("openai:gpt-x")
Agent(3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
no_deps.add_hook("onMessage", reads)
no_deps.add_hook("onMessage", bare)
no_deps.add_hook("onMessage", pre_tool_call)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]

bus: HookBus[Deps] = HookBus()
bus.add_hook("onMessage", reads)
bus.add_hook("onMessage", on_message_deps)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


async def chats(conversation: Conversation) -> None:
    assert_type(await agent.chat("hi", deps=Deps()), Response)
    await agent.chat("hi", deps=OtherDeps())  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    await agent.chat("hi", dep=Deps())  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    await agent.chat(3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    agent.chat_stream("hi", deps=OtherDeps())  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    talked = await agent.resume(conversation, {"id": Approve()}, deps=Deps())
    posted: dict[str, ToolResult | ToolFailure] = {"call": ToolResult({"file": "a.txt"})}
    await agent.resume(conversation, posted)
    agent.resume_stream(conversation, {"id": Deny("no"), "call": ToolFailure("closed")})
    assert_type(talked.client_calls, tuple[ToolCall, ...])
    shaped = await agent.chat("hi", deps=Deps(), output=OtherDeps)
    assert_type(shaped, Response[OtherDeps])
    assert_type(shaped.output, OtherDeps | None)
    assert_type((await agent.chat("hi", output=list[int])).output, list[int] | None)
    assert_type(agent.chat_stream("hi", output=OtherDeps).response.output, OtherDeps | None)
    assert_type((await agent.resume(conversation, {}, output=OtherDeps)).output, OtherDeps | None)
    await agent.chat(None, conversation="one", state={}, hooks=[], model="openai:gpt", tools=[])
    await agent.chat("hi", system="Be brief.", limits=Limits(steps=1), approver=None, chat_id="a")
    agent.resume_stream("one", {}, only_hooks=[], settings=Settings(seed=1), release="response")
    await agent.chat("hi", limits=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    await agent.chat("hi", release="now")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    await agent.update_message("one", "id", MessageChanges(text="x"), deps=Deps())
    plain = await Agent[Deps](any_model()).chat("hi")
    assert_type(plain.output, Any | None)
    shapes = Agent[Deps, OtherDeps](any_model(), output=OtherDeps, output_retries=2)
    assert_type(await shapes.chat("hi", deps=Deps()), Response[OtherDeps])
    assert_type(await shapes.chat(None, output=None), Response[OtherDeps])
    assert_type(shapes.chat_stream("hi"), ChatStream[OtherDeps])
    assert_type((await shapes.resume("one", {})).output, OtherDeps | None)
    assert_type((await shapes.chat("hi", output=str)).output, str | None)
    assert_type((await shapes.chat("hi", output=Deps)).output, Deps | None)
    assert_type(Agent(any_model(), output=OtherDeps), Agent[Any, OtherDeps])
    either = Agent[Deps, Deps | OtherDeps](any_model(), output=Deps | OtherDeps)
    assert_type((await either.chat("hi")).output, Deps | OtherDeps | None)
    async for part in shapes.chat_stream("hi").partial_outputs():
        assert_type(part, Any)
    Agent[Deps, OtherDeps](any_model(), output_retries="2")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    await agent.resume(conversation, {"id": True})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]


# ── definitions and tables ──────────────────────────────────────────────────────────────────

definition = define_hook("onMessage", on_message, id="audit", required=True)
define_hook("preToolCall", pre_tool_call, on_error="deny", tools=["add"])
define_hook("onResponse", on_response, withhold=True)
define_hook("onMessage", on_message, withhold=True)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
define_hook("onMesage", on_message)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
define_hook("onMessage", pre_tool_call)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
define_hook("preToolCall", pre_tool_call_wrong)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
Agent(any_model(), hooks=[definition, "audit", [definition]])
Agent(any_model(), hooks={"onMessage": on_message, OnChatEnd: [on_chat_end]})
Agent(any_model(), telemetry=None)
Agent(any_model(), telemetry=Telemetry(capture="span_only", redact=str.upper))
Agent(any_model(), telemetry=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
Telemetry(capture="all")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Agent(any_model(), hooks=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


@define_hook("preToolCall", id="deny_all", required=True, on_error="deny", tools=["add"])
def declared(ctx: PreToolCall[Deps]) -> ToolFailure:
    return ToolFailure("no")


@define_hook(OnMessage, id="later")
async def declared_later(ctx: OnMessage[Deps]) -> None: ...


@define_hook("preToolCall")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def declared_wrong(ctx: PreToolCall[Deps]) -> int:
    return 1


@define_hook("onMessage")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def declared_elsewhere(ctx: PreToolCall[Deps]) -> None: ...


class Tenant(HookSet):
    @define_hook("preToolCall", required=True, on_error="deny")
    def check(self, ctx: PreToolCall[Deps]) -> ToolFailure | None: ...

    @define_hook("aroundChat")
    async def around(self, ctx: AroundChat[Deps], proceed: ChatProceed) -> Response:
        return await proceed()

    @define_hook(OnMessage)
    async def later(self, ctx: OnMessage[Deps]) -> None: ...

    @define_hook("preToolCall")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    def wrong_return(self, ctx: PreToolCall[Deps]) -> int:
        return 1

    @define_hook("onMessage")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    def wrong_context(self, ctx: PreToolCall[Deps]) -> None: ...


assert_type(Tenant().check, HookDef)
assert_type(Tenant().check.name, str)
Agent(any_model(), hooks=[Tenant(), Tenant().later, [Tenant()]])


async def uses_a_set_of_hooks() -> None:
    await agent.use(Tenant())
    await agent.chat("hi", hooks=[Tenant()])
    await agent.chat("hi", only_hooks=[Tenant()])
    global_bus.add_hook("preToolCall", Tenant().check)


assert_type(declared, HookDef)
Agent(any_model(), hooks=[declared, declared_later])


# ── plugins ─────────────────────────────────────────────────────────────────────────────────


def plugin(agent: Agent[Deps]) -> None: ...


other: Agent[OtherDeps] = Agent(any_model(), name="other")
agent.handoffs(Agent[Deps](any_model(), name="same"))
agent.handoffs(other)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def plugin_later(agent: Agent[Deps]) -> Disposer:
    return agent.add_hook("onMessage", on_message)


def plugin_of_others(agent: Agent[OtherDeps]) -> None: ...


class PluginObject:
    hooks = (declared, [declared_later])


async def uses() -> None:
    assert_type(await agent.use(plugin), Uninstall)
    await agent.use(plugin_later, name="later")
    await agent.use(PluginObject())
    await agent.use([declared])
    await agent.use(plugin_of_others)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await agent.use(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# ── ready-made hooks ────────────────────────────────────────────────────────────────────────

ready = [budget(steps=3), retry(), redact("x"), approve("pay", when=lambda ctx: True), audit("x")]
Agent(any_model(), hooks=ready)
Agent(any_model(), hooks=[*ready, declared, [budget(steps=1)]])
rate_limit(3, by=lambda ctx: ctx.run.deps)
rate_limit(3, by="person")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
retry(on=(ValueError, KeyError))
retry(on=ValueError())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def uses_ready_made() -> None:
    await agent.use(budget(steps=1))
    await agent.use(from_folder("/srv/hooks"))
    Agent(any_model(), hooks=from_folder("/srv/hooks").hooks)


# ── tools ───────────────────────────────────────────────────────────────────────────────────


@tool
async def add(a: int, b: int, run: Run[Deps]) -> int:
    assert_type(run.deps, Deps)
    return a + b


@tool(name="subtract", idempotent=True)
def minus(a: int, b: int) -> int:
    return a - b


async def calls_tools(run: Run[Deps]) -> None:
    assert_type(await add(1, 2, run), int)
    assert_type(minus(1, 2), int)
    minus("1", 2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# ── points of one's own ─────────────────────────────────────────────────────────────────────


class Saved(Observer, frozen=True):
    path: str


class Renamed(Interceptor[str], frozen=True):
    name: str


class Fetched(Wrapper[bytes], frozen=True):
    url: str


def on_saved(ctx: Saved) -> None: ...


def on_renamed(ctx: Renamed) -> str | None:
    return ctx.name


async def on_renamed_later(ctx: Renamed) -> str:
    return ctx.name


def on_renamed_wrong(ctx: Renamed) -> int:
    return 1


async def on_fetched(ctx: Fetched, proceed: Proceed[str, bytes]) -> bytes:
    return await proceed(ctx.url)


async def on_fetched_wrong(ctx: Fetched, proceed: Proceed[str, bytes]) -> int:
    return 1


bus.add_hook(Saved, on_saved)
bus.add_hook(Renamed, on_renamed, priority=1)
bus.add_hook(Renamed, on_renamed_later, timeout=1)
bus.add_hook(Fetched, on_fetched)
define_hook(Saved, on_saved)
bus.add_hook(Saved, on_renamed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
bus.add_hook(Renamed, on_renamed_wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
bus.add_hook(Fetched, on_fetched_wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
bus.add_hook(Saved, on_saved, tools=["add"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
bus.add_hook(Saved, on_saved, on_error="deny")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


@bus.hook(Saved)
def saved(ctx: Saved) -> None: ...


@bus.hook(Renamed)
async def renamed(ctx: Renamed) -> str:
    return ctx.name


@bus.hook(Renamed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]
def renamed_wrong(ctx: Renamed) -> int:
    return 1


@bus.hook(Saved)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def saved_wrong(ctx: Renamed) -> None: ...


async def inner(url: str) -> bytes:
    return url.encode()


async def inner_wrong(url: str) -> int:
    return 1


async def fires() -> None:
    await bus.notify(Saved("a"))
    assert_type(await bus.intercept(Renamed("a")), str)
    assert_type(await bus.wrap(Fetched("a"), inner), bytes)
    await bus.intercept(Saved("a"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await bus.wrap(Fetched("a"), inner_wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# ── stores ──────────────────────────────────────────────────────────────────────────────────


async def opens(store: Store) -> None:
    assert_type(await Conversation.open(store, "c"), Conversation)
    await store.open("c")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


async def keeps() -> None:
    async with SQLStore("sqlite:///chats.db", pool_size=5) as store:
        any_store: Store = store
        any_store = MemoryStore()
        kept: Agent[Deps] = Agent(any_model(), store=any_store)
        assert_type(kept.store, Store | None)
        assert_type(await store.open("c"), Conversation)
        assert_type(await store.load("c"), Stored | None)
        assert_type(await store.list(), tuple[ConversationInfo, ...])
        assert_type(await store.pending(), tuple[ApprovalRequest, ...])
    async with Agent[Deps](any_model(), store="postgresql://host/name") as named:
        assert_type(named, Agent[Deps])
    talk = Conversation.from_json("{}")
    assert_type(talk.to_json(), bytes)
    changes = MessageChanges(text="x")
    assert_type(await agent.update_message(talk, "m", changes, deps=Deps()), Message)
    await agent.update_message(talk, "m", {"text": "x"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Agent(any_model(), store=7)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


# ── events ──────────────────────────────────────────────────────────────────────────────────

assert_type(bus.subscribe(TextDelta), Subscription[TextDelta])
assert_type(agent.subscribe(TextDelta), Subscription[TextDelta])
bus.subscribe(TextDelta, overflow="block")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def reads_events() -> None:
    async for event in bus.subscribe(ChatDone):
        assert_type(event, ChatDone)
    async with agent.chat_stream("hi") as stream:
        async for each in stream:
            assert_type(each, ChatEvent)


def is_exhaustive(event: ChatEvent) -> None:
    match event:
        case ChatStarted() | StepStarted() | StepFinished():
            pass
        case TextDelta() | ReasoningDelta() | PartEnd() | ResponseReset():
            pass
        case SourceAdded() | FileAdded():
            pass
        case ToolCallDelta() | ToolCallStarted() | ToolCallFinished():
            pass
        case Status() | ApprovalRequested() | MessageAdded():
            pass
        case MessageQueued() | MessageReturned():
            pass
        case ChatDone() | ChatAborted() | ChatFailed():
            pass
        case _:
            assert_never(event)


def is_not_exhaustive(event: ChatDone | ChatFailed) -> None:
    match event:
        case ChatDone():
            pass
        case _:
            assert_never(event)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# ── handoffs ────────────────────────────────────────────────────────────────────────────────

numbers = Agent[None, int](any_model(), output=int)
more_numbers = Agent[None, int](any_model(), output=int)
texts = Agent[None, str](any_model(), output=str)
numbers.handoffs(more_numbers)
numbers.handoffs(texts)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# ── changed copies ──────────────────────────────────────────────────────────────────────────


def changes_what_hooks_get(
    chat: PreChat, step: PreRequest, call: PreToolCall, answer: OnResponse
) -> None:
    assert_type(step.request.replace(model=any_model(), messages=[]), ModelRequest)
    assert_type(chat.request.replace(system=None, tools=()), ChatRequest)
    assert_type(call.call.replace(arguments={"path": "/tmp"}), ToolCall)
    assert_type(answer.response.replace(text="Hello.", finish_reason="stop"), ModelResponse)
    chat.request.replace(model=any_model())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    step.request.replace(sytem="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    step.request.replace(messages=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    call.call.replace(argumets={})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    answer.response.replace(finish_reason="done")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def changes_messages(message: Message, user: UserMessage, changes: MessageChanges) -> None:
    assert_type(user.replace(text="Hi."), UserMessage)
    assert_type(message.replace(text="Hi."), Message)
    user.replace(txt="Hi.")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    user.replace(parts="Hi.")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    message.replace(content="Hi.")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    changes.replace(text=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def changes_values(
    result: ToolResult, failure: ToolFailure, response: Response[int], lookup: Tool[[int], str]
) -> None:
    assert_type(response.replace(output=1), Response[int])
    assert_type(result.replace(value=[1]), ToolResult)
    failure.replace(mesage="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    result.replace(values=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    response.replace(output="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Settings().replace(temprature=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Limits().replace(step=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Ask("Sure?").replace(expire=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Stop("why").replace(txt="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    TextChunk("x").replace(text=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    lookup.replace(client=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    lookup.replace(timeout="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def _guard(ctx: PreToolCall[Any]) -> Deny | None:
    return None


agent.add_hook("preToolCall", _guard, guard=True, inherit=False)
define_hook("preToolCall", _guard, guard=True, required=False, inherit=None)


def forks(record: Record) -> None:
    assert_type(fork(record, step=1), Conversation)
    fork(record)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    fork(record, step="1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
