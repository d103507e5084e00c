"""Shared by the ready-made hooks: their priorities, and values per chat.

Each makes its definitions with `add`: `define_hook` with the name and the options that all of its
definitions have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast
from weakref import ref

from hookline import (
    HookDef,
    ModelRequest,
    ModelResponse,
    Proceed,
    Run,
    ToolCall,
    ToolFailure,
    ToolResult,
    define_hook,
)
from hookline.errors import UsageError
from hookline.models import ProviderTool
from hookline.points import OnChatEnd, PreRequest, matches

T = TypeVar("T")
Hooks: TypeAlias = tuple[HookDef, ...]
"""The hook definitions that a ready-made hook consists of."""
Add: TypeAlias = Callable[..., HookDef]


def definer(**options: Any) -> Add:
    """Return `define_hook` with these options, of a type that checkers need not derive."""
    return partial(cast("Any", define_hook), **options)


"""`define_hook` with the name, `inherit=` and `required=` of a ready-made hook."""
Outcome: TypeAlias = ToolResult | ToolFailure
"""What a tool returned, or why it did not."""
CallModel: TypeAlias = Proceed[ModelRequest, ModelResponse]
"""The function that a wrapper of model calls awaits."""
RunTool: TypeAlias = Proceed[ToolCall, Outcome]
"""The function that a wrapper of tool calls awaits."""

GUARD: Final = 200  # runs before other hooks
INFRASTRUCTURE: Final = 100
LAST: Final = -10_000  # runs after all other hooks; as a wrapper, innermost


def tool_names(tools: Iterable[str] | None) -> Iterable[str] | None:
    """Make `tools=` reusable for several hooks; a str is returned unchanged, and rejected later."""
    return tools if tools is None or isinstance(tools, str) else tuple(tools)


def not_by_the_provider(add: Add, guard: str, names: Iterable[str]) -> HookDef:
    """Make a hook that raises if a guard is used for a tool that the provider runs itself.

    It runs just before the request is sent, because other hooks may remove the tool until then.
    """
    names = tuple(names)

    def check(ctx: PreRequest[Any]) -> None:
        for tool in ctx.request.tools:
            if isinstance(tool, ProviderTool) and (not names or matches(tool.name, names)):
                raise UsageError(
                    f"{guard}() cannot guard {tool.name!r}, which the provider runs itself: remove "
                    "the tool, or exclude it with allow_tools() or a hook at preRequest"
                )

    return add("preRequest", check, priority=LAST)


class PerChat(Generic[T]):
    """One value for each running chat; the hook made by `forget` removes the value.

    A chat that was cut off under a durable runtime has no end. If this process continues the chat,
    its value is made anew, as in any other process.
    """

    def __init__(self, make: Callable[[Run[Any]], T]) -> None:
        self._make = make
        self._values: dict[str, tuple[ref[object], T]] = {}

    def of(self, run: Run[Any]) -> T:
        """Return this chat's value, which is made on first use."""
        chat = Run.chat_of(run)
        entry = self._values.get(run.chat_id)
        if entry is None or entry[0]() is not chat:
            entry = self._values[run.chat_id] = (ref(chat), self._make(run))
        return entry[1]

    def find(self, chat_id: str | None) -> T | None:
        """Return the value of this chat; None if the chat is not running or has no value."""
        entry = self._values.get(chat_id) if chat_id is not None else None
        return None if entry is None else entry[1]

    def __len__(self) -> int:
        return len(self._values)

    def forget(self, add: Add) -> HookDef:
        """Make a hook that removes a chat's value when the chat ends."""

        def end(ctx: OnChatEnd[Any]) -> None:
            self._values.pop(ctx.run.chat_id, None)

        return add("onChatEnd", end, priority=LAST)
