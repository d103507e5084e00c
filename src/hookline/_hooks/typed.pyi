"""The types of `add_hook`, `hook` and `define_hook`, one overload per hook point.

Generated from the table in `_hooks/points.py` by scripts/dev/generate.py. Do not edit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, overload

from hookline._base.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from hookline._base.returns import (
    Approve,
    Ask,
    Compaction,
    Continue,
    Deny,
    Guide,
    Hold,
    MessageChanges,
    Response,
    Stop,
    ToolFailure,
    ToolResult,
)
from hookline._base.run import D, DepsT
from hookline._hooks import points as p
from hookline._hooks.declared import HookDef
from hookline._hooks.registration import Disposer
from hookline._hooks.wrappers import Proceed
from hookline._model.model import (
    ChatRequest,
    FileChunk,
    ModelRequest,
    ModelResponse,
    PartEndChunk,
    ReasoningChunk,
    SourceChunk,
    TextChunk,
    ToolCallChunk,
)

C = TypeVar("C")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
O = TypeVar("O", bound=p.Observer)
OnError = Literal["raise", "log"]
Maybe: TypeAlias = R | Awaitable[R | None] | None  # what an interceptor may give, sync or async

class ObserverDecorator(Protocol[C]):
    def __call__(self, hook: Callable[[C], T], /) -> Callable[[C], T]: ...

class InterceptorDecorator(Protocol[C, R]):
    @overload
    def __call__(
        self, hook: Callable[[C], Coroutine[Any, Any, R | None]], /
    ) -> Callable[[C], Coroutine[Any, Any, R | None]]: ...
    @overload
    def __call__(self, hook: Callable[[C], R | None], /) -> Callable[[C], R | None]: ...

class WrapperDecorator(Protocol[C, T, R]):
    def __call__(
        self, hook: Callable[[C, Proceed[T, R]], Coroutine[Any, Any, R]], /
    ) -> Callable[[C, Proceed[T, R]], Coroutine[Any, Any, R]]: ...

class AddHook(Protocol[D]):
    @overload
    def __call__(
        self,
        point: Literal["aroundChat"] | type[p.AroundChat[Any]],
        hook: Callable[[p.AroundChat[D], Proceed[UserMessage, Response]], Awaitable[Response]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
        observes: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["onChatStart"] | type[p.OnChatStart[Any]],
        hook: Callable[[p.OnChatStart[D]], object],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["preChat"] | type[p.PreChat[Any]],
        hook: Callable[[p.PreChat[D]], Maybe[ChatRequest | ModelResponse | Stop]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["preSteer"] | type[p.PreSteer[Any]],
        hook: Callable[[p.PreSteer[D]], Maybe[UserMessage | Hold | Deny]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
        early: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["preCompact"] | type[p.PreCompact[Any]],
        hook: Callable[[p.PreCompact[D]], Maybe[Compaction | Deny]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["preRequest"] | type[p.PreRequest[Any]],
        hook: Callable[[p.PreRequest[D]], Maybe[ModelRequest | ModelResponse | Stop]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["aroundRequest"] | type[p.AroundRequest[Any]],
        hook: Callable[
            [p.AroundRequest[D], Proceed[ModelRequest, ModelResponse]], Awaitable[ModelResponse]
        ],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
        observes: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["onDelta"] | type[p.OnDelta[Any]],
        hook: Callable[
            [p.OnDelta[D]],
            Maybe[
                TextChunk
                | ReasoningChunk
                | PartEndChunk
                | ToolCallChunk
                | SourceChunk
                | FileChunk
                | tuple[
                    TextChunk
                    | ReasoningChunk
                    | PartEndChunk
                    | ToolCallChunk
                    | SourceChunk
                    | FileChunk,
                    ...,
                ]
            ],
        ],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["onResponse"] | type[p.OnResponse[Any]],
        hook: Callable[[p.OnResponse[D]], Maybe[ModelResponse | Guide]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
        keeps_deltas: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["preMessage"] | type[p.PreMessage[Any]],
        hook: Callable[[p.PreMessage[D]], Maybe[UserMessage | AssistantMessage | ToolMessage]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
        keeps_deltas: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["onMessage"] | type[p.OnMessage[Any]],
        hook: Callable[[p.OnMessage[D]], object],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["preToolCall"] | type[p.PreToolCall[Any]],
        hook: Callable[
            [p.PreToolCall[D]],
            Maybe[
                ToolCall
                | Ask
                | Approve
                | ToolResult
                | ToolFailure
                | Deny
                | Stop
                | tuple[ToolCall, Ask]
            ],
        ],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: Literal["raise", "log", "deny"] = "raise",
        tools: Iterable[str] | None = None,
        inherit: bool | None = None,
        guard: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["aroundToolCall"] | type[p.AroundToolCall[Any]],
        hook: Callable[
            [p.AroundToolCall[D], Proceed[ToolCall, ToolResult | ToolFailure]],
            Awaitable[ToolResult | ToolFailure],
        ],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        tools: Iterable[str] | None = None,
        inherit: bool = False,
        observes: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["onToolCallResult"] | type[p.OnToolCallResult[Any]],
        hook: Callable[[p.OnToolCallResult[D]], Maybe[ToolResult | ToolFailure]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        tools: Iterable[str] | None = None,
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["onToolCallError"] | type[p.OnToolCallError[Any]],
        hook: Callable[[p.OnToolCallError[D]], Maybe[ToolFailure | ToolResult | Stop]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        tools: Iterable[str] | None = None,
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["onStep"] | type[p.OnStep[Any]],
        hook: Callable[[p.OnStep[D]], Maybe[Stop]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["preStop"] | type[p.PreStop[Any]],
        hook: Callable[[p.PreStop[D]], Maybe[Continue]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["onChatDone"] | type[p.OnChatDone[Any]],
        hook: Callable[[p.OnChatDone[D]], object],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["onChatAbort"] | type[p.OnChatAbort[Any]],
        hook: Callable[[p.OnChatAbort[D]], object],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["onChatError"] | type[p.OnChatError[Any]],
        hook: Callable[[p.OnChatError[D]], object],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["onChatEnd"] | type[p.OnChatEnd[Any]],
        hook: Callable[[p.OnChatEnd[D]], object],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["onStatus"] | type[p.OnStatus[Any]],
        hook: Callable[[p.OnStatus[D]], object],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["onApproval"] | type[p.OnApproval[Any]],
        hook: Callable[[p.OnApproval[D]], object],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["preMessageUpdate"] | type[p.PreMessageUpdate[Any]],
        hook: Callable[[p.PreMessageUpdate[D]], Maybe[MessageChanges]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["onMessageUpdate"] | type[p.OnMessageUpdate[Any]],
        hook: Callable[[p.OnMessageUpdate[D]], object],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["onScopeRegister"] | type[p.OnScopeRegister],
        hook: Callable[[p.OnScopeRegister], object],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["onScopeUnregister"] | type[p.OnScopeUnregister],
        hook: Callable[[p.OnScopeUnregister], object],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: Literal["onHook"] | type[p.OnHook[Any]],
        hook: Callable[[p.OnHook[D]], object],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: type[O],
        hook: Callable[[O], object],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: type[p.Interceptor[R]],
        hook: Callable[[Any], Maybe[R]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...
    @overload
    def __call__(
        self,
        point: type[p.Wrapper[R]],
        hook: Callable[[Any, Proceed[Any, R]], Awaitable[R]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Disposer: ...

class HookDecorator(Protocol[DepsT]):
    @overload
    def __call__(
        self,
        point: Literal["aroundChat"] | type[p.AroundChat[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
        observes: bool = False,
    ) -> WrapperDecorator[p.AroundChat[DepsT], UserMessage, Response]: ...
    @overload
    def __call__(
        self,
        point: Literal["onChatStart"] | type[p.OnChatStart[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> ObserverDecorator[p.OnChatStart[DepsT]]: ...
    @overload
    def __call__(
        self,
        point: Literal["preChat"] | type[p.PreChat[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> InterceptorDecorator[p.PreChat[DepsT], ChatRequest | ModelResponse | Stop]: ...
    @overload
    def __call__(
        self,
        point: Literal["preSteer"] | type[p.PreSteer[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
        early: bool = False,
    ) -> InterceptorDecorator[p.PreSteer[DepsT], UserMessage | Hold | Deny]: ...
    @overload
    def __call__(
        self,
        point: Literal["preCompact"] | type[p.PreCompact[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> InterceptorDecorator[p.PreCompact[DepsT], Compaction | Deny]: ...
    @overload
    def __call__(
        self,
        point: Literal["preRequest"] | type[p.PreRequest[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> InterceptorDecorator[p.PreRequest[DepsT], ModelRequest | ModelResponse | Stop]: ...
    @overload
    def __call__(
        self,
        point: Literal["aroundRequest"] | type[p.AroundRequest[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
        observes: bool = False,
    ) -> WrapperDecorator[p.AroundRequest[DepsT], ModelRequest, ModelResponse]: ...
    @overload
    def __call__(
        self,
        point: Literal["onDelta"] | type[p.OnDelta[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> InterceptorDecorator[
        p.OnDelta[DepsT],
        TextChunk
        | ReasoningChunk
        | PartEndChunk
        | ToolCallChunk
        | SourceChunk
        | FileChunk
        | tuple[
            TextChunk | ReasoningChunk | PartEndChunk | ToolCallChunk | SourceChunk | FileChunk, ...
        ],
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["onResponse"] | type[p.OnResponse[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
        keeps_deltas: bool = False,
    ) -> InterceptorDecorator[p.OnResponse[DepsT], ModelResponse | Guide]: ...
    @overload
    def __call__(
        self,
        point: Literal["preMessage"] | type[p.PreMessage[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
        keeps_deltas: bool = False,
    ) -> InterceptorDecorator[
        p.PreMessage[DepsT], UserMessage | AssistantMessage | ToolMessage
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["onMessage"] | type[p.OnMessage[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> ObserverDecorator[p.OnMessage[DepsT]]: ...
    @overload
    def __call__(
        self,
        point: Literal["preToolCall"] | type[p.PreToolCall[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: Literal["raise", "log", "deny"] = "raise",
        tools: Iterable[str] | None = None,
        inherit: bool | None = None,
        guard: bool = False,
    ) -> InterceptorDecorator[
        p.PreToolCall[DepsT],
        ToolCall | Ask | Approve | ToolResult | ToolFailure | Deny | Stop | tuple[ToolCall, Ask],
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["aroundToolCall"] | type[p.AroundToolCall[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        tools: Iterable[str] | None = None,
        inherit: bool = False,
        observes: bool = False,
    ) -> WrapperDecorator[p.AroundToolCall[DepsT], ToolCall, ToolResult | ToolFailure]: ...
    @overload
    def __call__(
        self,
        point: Literal["onToolCallResult"] | type[p.OnToolCallResult[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        tools: Iterable[str] | None = None,
        inherit: bool = False,
    ) -> InterceptorDecorator[p.OnToolCallResult[DepsT], ToolResult | ToolFailure]: ...
    @overload
    def __call__(
        self,
        point: Literal["onToolCallError"] | type[p.OnToolCallError[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        tools: Iterable[str] | None = None,
        inherit: bool = False,
    ) -> InterceptorDecorator[p.OnToolCallError[DepsT], ToolFailure | ToolResult | Stop]: ...
    @overload
    def __call__(
        self,
        point: Literal["onStep"] | type[p.OnStep[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> InterceptorDecorator[p.OnStep[DepsT], Stop]: ...
    @overload
    def __call__(
        self,
        point: Literal["preStop"] | type[p.PreStop[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> InterceptorDecorator[p.PreStop[DepsT], Continue]: ...
    @overload
    def __call__(
        self,
        point: Literal["onChatDone"] | type[p.OnChatDone[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> ObserverDecorator[p.OnChatDone[DepsT]]: ...
    @overload
    def __call__(
        self,
        point: Literal["onChatAbort"] | type[p.OnChatAbort[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> ObserverDecorator[p.OnChatAbort[DepsT]]: ...
    @overload
    def __call__(
        self,
        point: Literal["onChatError"] | type[p.OnChatError[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> ObserverDecorator[p.OnChatError[DepsT]]: ...
    @overload
    def __call__(
        self,
        point: Literal["onChatEnd"] | type[p.OnChatEnd[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> ObserverDecorator[p.OnChatEnd[DepsT]]: ...
    @overload
    def __call__(
        self,
        point: Literal["onStatus"] | type[p.OnStatus[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> ObserverDecorator[p.OnStatus[DepsT]]: ...
    @overload
    def __call__(
        self,
        point: Literal["onApproval"] | type[p.OnApproval[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> ObserverDecorator[p.OnApproval[DepsT]]: ...
    @overload
    def __call__(
        self,
        point: Literal["preMessageUpdate"] | type[p.PreMessageUpdate[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> InterceptorDecorator[p.PreMessageUpdate[DepsT], MessageChanges]: ...
    @overload
    def __call__(
        self,
        point: Literal["onMessageUpdate"] | type[p.OnMessageUpdate[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> ObserverDecorator[p.OnMessageUpdate[DepsT]]: ...
    @overload
    def __call__(
        self,
        point: Literal["onScopeRegister"] | type[p.OnScopeRegister],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> ObserverDecorator[p.OnScopeRegister]: ...
    @overload
    def __call__(
        self,
        point: Literal["onScopeUnregister"] | type[p.OnScopeUnregister],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> ObserverDecorator[p.OnScopeUnregister]: ...
    @overload
    def __call__(
        self,
        point: Literal["onHook"] | type[p.OnHook[Any]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> ObserverDecorator[p.OnHook[DepsT]]: ...
    @overload
    def __call__(
        self,
        point: type[O],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> ObserverDecorator[O]: ...
    @overload
    def __call__(
        self,
        point: type[p.Interceptor[R]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> InterceptorDecorator[Any, R]: ...
    @overload
    def __call__(
        self,
        point: type[p.Wrapper[R]],
        *,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> WrapperDecorator[Any, Any, R]: ...

class DefineHook(Protocol):
    @overload
    def __call__(
        self,
        point: Literal["aroundChat"] | type[p.AroundChat[Any]],
        hook: Callable[[p.AroundChat[Any], Proceed[UserMessage, Response]], Awaitable[Response]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
        observes: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["onChatStart"] | type[p.OnChatStart[Any]],
        hook: Callable[[p.OnChatStart[Any]], object],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["preChat"] | type[p.PreChat[Any]],
        hook: Callable[[p.PreChat[Any]], Maybe[ChatRequest | ModelResponse | Stop]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["preSteer"] | type[p.PreSteer[Any]],
        hook: Callable[[p.PreSteer[Any]], Maybe[UserMessage | Hold | Deny]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
        early: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["preCompact"] | type[p.PreCompact[Any]],
        hook: Callable[[p.PreCompact[Any]], Maybe[Compaction | Deny]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["preRequest"] | type[p.PreRequest[Any]],
        hook: Callable[[p.PreRequest[Any]], Maybe[ModelRequest | ModelResponse | Stop]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["aroundRequest"] | type[p.AroundRequest[Any]],
        hook: Callable[
            [p.AroundRequest[Any], Proceed[ModelRequest, ModelResponse]], Awaitable[ModelResponse]
        ],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
        observes: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["onDelta"] | type[p.OnDelta[Any]],
        hook: Callable[
            [p.OnDelta[Any]],
            Maybe[
                TextChunk
                | ReasoningChunk
                | PartEndChunk
                | ToolCallChunk
                | SourceChunk
                | FileChunk
                | tuple[
                    TextChunk
                    | ReasoningChunk
                    | PartEndChunk
                    | ToolCallChunk
                    | SourceChunk
                    | FileChunk,
                    ...,
                ]
            ],
        ],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["onResponse"] | type[p.OnResponse[Any]],
        hook: Callable[[p.OnResponse[Any]], Maybe[ModelResponse | Guide]],
        *,
        id: str | None = None,
        required: bool = False,
        withhold: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
        keeps_deltas: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["preMessage"] | type[p.PreMessage[Any]],
        hook: Callable[[p.PreMessage[Any]], Maybe[UserMessage | AssistantMessage | ToolMessage]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
        keeps_deltas: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["onMessage"] | type[p.OnMessage[Any]],
        hook: Callable[[p.OnMessage[Any]], object],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["preToolCall"] | type[p.PreToolCall[Any]],
        hook: Callable[
            [p.PreToolCall[Any]],
            Maybe[
                ToolCall
                | Ask
                | Approve
                | ToolResult
                | ToolFailure
                | Deny
                | Stop
                | tuple[ToolCall, Ask]
            ],
        ],
        *,
        id: str | None = None,
        required: bool | None = None,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: Literal["raise", "log", "deny"] = "raise",
        tools: Iterable[str] | None = None,
        inherit: bool | None = None,
        guard: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["aroundToolCall"] | type[p.AroundToolCall[Any]],
        hook: Callable[
            [p.AroundToolCall[Any], Proceed[ToolCall, ToolResult | ToolFailure]],
            Awaitable[ToolResult | ToolFailure],
        ],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        tools: Iterable[str] | None = None,
        inherit: bool = False,
        observes: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["onToolCallResult"] | type[p.OnToolCallResult[Any]],
        hook: Callable[[p.OnToolCallResult[Any]], Maybe[ToolResult | ToolFailure]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        tools: Iterable[str] | None = None,
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["onToolCallError"] | type[p.OnToolCallError[Any]],
        hook: Callable[[p.OnToolCallError[Any]], Maybe[ToolFailure | ToolResult | Stop]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        tools: Iterable[str] | None = None,
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["onStep"] | type[p.OnStep[Any]],
        hook: Callable[[p.OnStep[Any]], Maybe[Stop]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["preStop"] | type[p.PreStop[Any]],
        hook: Callable[[p.PreStop[Any]], Maybe[Continue]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["onChatDone"] | type[p.OnChatDone[Any]],
        hook: Callable[[p.OnChatDone[Any]], object],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["onChatAbort"] | type[p.OnChatAbort[Any]],
        hook: Callable[[p.OnChatAbort[Any]], object],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["onChatError"] | type[p.OnChatError[Any]],
        hook: Callable[[p.OnChatError[Any]], object],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["onChatEnd"] | type[p.OnChatEnd[Any]],
        hook: Callable[[p.OnChatEnd[Any]], object],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["onStatus"] | type[p.OnStatus[Any]],
        hook: Callable[[p.OnStatus[Any]], object],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["onApproval"] | type[p.OnApproval[Any]],
        hook: Callable[[p.OnApproval[Any]], object],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["preMessageUpdate"] | type[p.PreMessageUpdate[Any]],
        hook: Callable[[p.PreMessageUpdate[Any]], Maybe[MessageChanges]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["onMessageUpdate"] | type[p.OnMessageUpdate[Any]],
        hook: Callable[[p.OnMessageUpdate[Any]], object],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["onScopeRegister"] | type[p.OnScopeRegister],
        hook: Callable[[p.OnScopeRegister], object],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["onScopeUnregister"] | type[p.OnScopeUnregister],
        hook: Callable[[p.OnScopeUnregister], object],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["onHook"] | type[p.OnHook[Any]],
        hook: Callable[[p.OnHook[Any]], object],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: type[O],
        hook: Callable[[O], object],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: type[p.Interceptor[R]],
        hook: Callable[[Any], Maybe[R]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: type[p.Wrapper[R]],
        hook: Callable[[Any, Proceed[Any, R]], Awaitable[R]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> HookDef: ...
    @overload
    def __call__(
        self,
        point: Literal["aroundChat"] | type[p.AroundChat[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
        observes: bool = False,
    ) -> Callable[
        [
            Callable[[p.AroundChat[Any], Proceed[UserMessage, Response]], Awaitable[Response]]
            | Callable[
                [Any, p.AroundChat[Any], Proceed[UserMessage, Response]], Awaitable[Response]
            ]
        ],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["onChatStart"] | type[p.OnChatStart[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[
        [Callable[[p.OnChatStart[Any]], object] | Callable[[Any, p.OnChatStart[Any]], object]],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["preChat"] | type[p.PreChat[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[
        [
            Callable[[p.PreChat[Any]], Maybe[ChatRequest | ModelResponse | Stop]]
            | Callable[[Any, p.PreChat[Any]], Maybe[ChatRequest | ModelResponse | Stop]]
        ],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["preSteer"] | type[p.PreSteer[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
        early: bool = False,
    ) -> Callable[
        [
            Callable[[p.PreSteer[Any]], Maybe[UserMessage | Hold | Deny]]
            | Callable[[Any, p.PreSteer[Any]], Maybe[UserMessage | Hold | Deny]]
        ],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["preCompact"] | type[p.PreCompact[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[
        [
            Callable[[p.PreCompact[Any]], Maybe[Compaction | Deny]]
            | Callable[[Any, p.PreCompact[Any]], Maybe[Compaction | Deny]]
        ],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["preRequest"] | type[p.PreRequest[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[
        [
            Callable[[p.PreRequest[Any]], Maybe[ModelRequest | ModelResponse | Stop]]
            | Callable[[Any, p.PreRequest[Any]], Maybe[ModelRequest | ModelResponse | Stop]]
        ],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["aroundRequest"] | type[p.AroundRequest[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
        observes: bool = False,
    ) -> Callable[
        [
            Callable[
                [p.AroundRequest[Any], Proceed[ModelRequest, ModelResponse]],
                Awaitable[ModelResponse],
            ]
            | Callable[
                [Any, p.AroundRequest[Any], Proceed[ModelRequest, ModelResponse]],
                Awaitable[ModelResponse],
            ]
        ],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["onDelta"] | type[p.OnDelta[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[
        [
            Callable[
                [p.OnDelta[Any]],
                Maybe[
                    TextChunk
                    | ReasoningChunk
                    | PartEndChunk
                    | ToolCallChunk
                    | SourceChunk
                    | FileChunk
                    | tuple[
                        TextChunk
                        | ReasoningChunk
                        | PartEndChunk
                        | ToolCallChunk
                        | SourceChunk
                        | FileChunk,
                        ...,
                    ]
                ],
            ]
            | Callable[
                [Any, p.OnDelta[Any]],
                Maybe[
                    TextChunk
                    | ReasoningChunk
                    | PartEndChunk
                    | ToolCallChunk
                    | SourceChunk
                    | FileChunk
                    | tuple[
                        TextChunk
                        | ReasoningChunk
                        | PartEndChunk
                        | ToolCallChunk
                        | SourceChunk
                        | FileChunk,
                        ...,
                    ]
                ],
            ]
        ],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["onResponse"] | type[p.OnResponse[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        withhold: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
        keeps_deltas: bool = False,
    ) -> Callable[
        [
            Callable[[p.OnResponse[Any]], Maybe[ModelResponse | Guide]]
            | Callable[[Any, p.OnResponse[Any]], Maybe[ModelResponse | Guide]]
        ],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["preMessage"] | type[p.PreMessage[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
        keeps_deltas: bool = False,
    ) -> Callable[
        [
            Callable[[p.PreMessage[Any]], Maybe[UserMessage | AssistantMessage | ToolMessage]]
            | Callable[
                [Any, p.PreMessage[Any]], Maybe[UserMessage | AssistantMessage | ToolMessage]
            ]
        ],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["onMessage"] | type[p.OnMessage[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[
        [Callable[[p.OnMessage[Any]], object] | Callable[[Any, p.OnMessage[Any]], object]], HookDef
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["preToolCall"] | type[p.PreToolCall[Any]],
        *,
        id: str | None = None,
        required: bool | None = None,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: Literal["raise", "log", "deny"] = "raise",
        tools: Iterable[str] | None = None,
        inherit: bool | None = None,
        guard: bool = False,
    ) -> Callable[
        [
            Callable[
                [p.PreToolCall[Any]],
                Maybe[
                    ToolCall
                    | Ask
                    | Approve
                    | ToolResult
                    | ToolFailure
                    | Deny
                    | Stop
                    | tuple[ToolCall, Ask]
                ],
            ]
            | Callable[
                [Any, p.PreToolCall[Any]],
                Maybe[
                    ToolCall
                    | Ask
                    | Approve
                    | ToolResult
                    | ToolFailure
                    | Deny
                    | Stop
                    | tuple[ToolCall, Ask]
                ],
            ]
        ],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["aroundToolCall"] | type[p.AroundToolCall[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        tools: Iterable[str] | None = None,
        inherit: bool = False,
        observes: bool = False,
    ) -> Callable[
        [
            Callable[
                [p.AroundToolCall[Any], Proceed[ToolCall, ToolResult | ToolFailure]],
                Awaitable[ToolResult | ToolFailure],
            ]
            | Callable[
                [Any, p.AroundToolCall[Any], Proceed[ToolCall, ToolResult | ToolFailure]],
                Awaitable[ToolResult | ToolFailure],
            ]
        ],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["onToolCallResult"] | type[p.OnToolCallResult[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        tools: Iterable[str] | None = None,
        inherit: bool = False,
    ) -> Callable[
        [
            Callable[[p.OnToolCallResult[Any]], Maybe[ToolResult | ToolFailure]]
            | Callable[[Any, p.OnToolCallResult[Any]], Maybe[ToolResult | ToolFailure]]
        ],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["onToolCallError"] | type[p.OnToolCallError[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        tools: Iterable[str] | None = None,
        inherit: bool = False,
    ) -> Callable[
        [
            Callable[[p.OnToolCallError[Any]], Maybe[ToolFailure | ToolResult | Stop]]
            | Callable[[Any, p.OnToolCallError[Any]], Maybe[ToolFailure | ToolResult | Stop]]
        ],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["onStep"] | type[p.OnStep[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[
        [Callable[[p.OnStep[Any]], Maybe[Stop]] | Callable[[Any, p.OnStep[Any]], Maybe[Stop]]],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["preStop"] | type[p.PreStop[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[
        [
            Callable[[p.PreStop[Any]], Maybe[Continue]]
            | Callable[[Any, p.PreStop[Any]], Maybe[Continue]]
        ],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["onChatDone"] | type[p.OnChatDone[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[
        [Callable[[p.OnChatDone[Any]], object] | Callable[[Any, p.OnChatDone[Any]], object]],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["onChatAbort"] | type[p.OnChatAbort[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[
        [Callable[[p.OnChatAbort[Any]], object] | Callable[[Any, p.OnChatAbort[Any]], object]],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["onChatError"] | type[p.OnChatError[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[
        [Callable[[p.OnChatError[Any]], object] | Callable[[Any, p.OnChatError[Any]], object]],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["onChatEnd"] | type[p.OnChatEnd[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[
        [Callable[[p.OnChatEnd[Any]], object] | Callable[[Any, p.OnChatEnd[Any]], object]], HookDef
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["onStatus"] | type[p.OnStatus[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[
        [Callable[[p.OnStatus[Any]], object] | Callable[[Any, p.OnStatus[Any]], object]], HookDef
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["onApproval"] | type[p.OnApproval[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[
        [Callable[[p.OnApproval[Any]], object] | Callable[[Any, p.OnApproval[Any]], object]],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["preMessageUpdate"] | type[p.PreMessageUpdate[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[
        [
            Callable[[p.PreMessageUpdate[Any]], Maybe[MessageChanges]]
            | Callable[[Any, p.PreMessageUpdate[Any]], Maybe[MessageChanges]]
        ],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["onMessageUpdate"] | type[p.OnMessageUpdate[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[
        [
            Callable[[p.OnMessageUpdate[Any]], object]
            | Callable[[Any, p.OnMessageUpdate[Any]], object]
        ],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["onScopeRegister"] | type[p.OnScopeRegister],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[
        [Callable[[p.OnScopeRegister], object] | Callable[[Any, p.OnScopeRegister], object]],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["onScopeUnregister"] | type[p.OnScopeUnregister],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[
        [Callable[[p.OnScopeUnregister], object] | Callable[[Any, p.OnScopeUnregister], object]],
        HookDef,
    ]: ...
    @overload
    def __call__(
        self,
        point: Literal["onHook"] | type[p.OnHook[Any]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[
        [Callable[[p.OnHook[Any]], object] | Callable[[Any, p.OnHook[Any]], object]], HookDef
    ]: ...
    @overload
    def __call__(
        self,
        point: type[O],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[[Callable[[O], object] | Callable[[Any, O], object]], HookDef]: ...
    @overload
    def __call__(
        self,
        point: type[p.Interceptor[R]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[[Callable[[Any], Maybe[R]] | Callable[[Any, Any], Maybe[R]]], HookDef]: ...
    @overload
    def __call__(
        self,
        point: type[p.Wrapper[R]],
        *,
        id: str | None = None,
        required: bool = False,
        priority: int = 0,
        name: str | None = None,
        timeout: float | None = None,
        on_error: OnError = "raise",
        inherit: bool = False,
    ) -> Callable[
        [
            Callable[[Any, Proceed[Any, R]], Awaitable[R]]
            | Callable[[Any, Any, Proceed[Any, R]], Awaitable[R]]
        ],
        HookDef,
    ]: ...
