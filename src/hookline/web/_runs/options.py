"""The keywords of a chat that a route of your own may pass."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

from hookline import ApprovalRequest, Approve, Deny, Limits, Model, Run, Runtime, Settings, Tool

Hooks: TypeAlias = Mapping[Any, Any] | Sequence[Any] | None
Approver: TypeAlias = Callable[
    [ApprovalRequest, Run[Any]], Approve | Deny | Awaitable[Approve | Deny]
]
SystemText: TypeAlias = str | Callable[[Run[Any]], str | Awaitable[str | None] | None] | None


class RouteOptions(TypedDict, total=False):
    """The keywords of `chat_stream`, except `conversation` and `system`."""

    deps: Any
    state: dict[str, Any] | None
    hooks: Hooks
    only_hooks: Hooks
    model: Model | str | None
    tools: Iterable[Tool[..., Any] | Callable[..., Any]] | None
    settings: Settings | None
    limits: Limits | None
    approver: Approver | None
    output: Any
    output_retries: int | None
    output_validators: Iterable[Callable[..., Any]] | None
    release: Literal["live", "response"]
    runtime: Runtime | None
    chat_id: str | None


class ChatOptions(RouteOptions, total=False):
    """The keywords of `resume_stream`, except `conversation`."""

    system: SystemText
