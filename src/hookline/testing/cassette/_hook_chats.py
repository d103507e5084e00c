"""Finds the chats that hooks begin in a chat with a cassette, which are recorded and replayed too.

Hooks such as `summarize` ask a model in a chat of their own, to which nobody can pass the cassette.
So the hooks of the cassette are global hooks of its block too, and run in such chats alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Final

from hookline import HookDef, global_bus
from hookline.points import AroundChat

IN_TOOL: Final[ContextVar[bool]] = ContextVar("hookline_cassette_in_tool", default=False)
"""Set while a tool runs whose result is recorded: the chats that it begins are part of it."""
_CHAT: Final[ContextVar[tuple[HookChats, str] | None]] = ContextVar(
    "hookline_cassette_chat", default=None
)


class HookChats:
    """The chats that hooks have begun while this cassette was used."""

    def __init__(self) -> None:
        self.parents: dict[str, str] = {}
        """By the id of a chat, the id of the chat whose hook has begun it."""

    async def around_chat(self, ctx: AroundChat[Any], proceed: Any) -> Any:
        """Run a chat of the cassette."""
        token = _CHAT.set((self, ctx.run.chat_id))
        try:
            return await proceed()
        finally:
            _CHAT.reset(token)

    @contextmanager
    def follow(self, hooks: Iterable[HookDef]) -> Generator[None]:
        """Run these hooks also in the chats that hooks begin in this block."""
        add_hook: Any = global_bus.add_hook
        with ExitStack() as stack:
            for hook in hooks:
                priority = hook.options.priority - 1  # inside of the cassette's own aroundChat
                function = self._for_hook_chats(hook)
                disposer = add_hook(hook.point, function, name=hook.name, priority=priority)
                stack.enter_context(disposer)
            yield

    def _for_hook_chats(self, hook: HookDef) -> Callable[..., Any]:
        """The function of a hook, for no chat but those that hooks have begun."""
        if hook.point == "aroundChat":
            return self._around_other

        async def wrapper(ctx: Any, proceed: Any) -> Any:
            is_begun = ctx.run.chat_id in self.parents
            return await (hook.fn(ctx, proceed) if is_begun else proceed())

        def observer(ctx: Any) -> Any:
            return hook.fn(ctx) if ctx.run.chat_id in self.parents else None

        return wrapper if str(hook.point).startswith("around") else observer

    async def _around_other(self, ctx: AroundChat[Any], proceed: Any) -> Any:
        """Note a chat that a hook begins without the cassette."""
        chats, chat_id = _CHAT.get() or (None, "")
        if chats is not self or chat_id == ctx.run.chat_id or IN_TOOL.get():
            return await proceed()
        self.parents[ctx.run.chat_id] = chat_id
        return await self.around_chat(ctx, proceed)
