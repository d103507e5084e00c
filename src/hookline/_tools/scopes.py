"""Scopes: named bundles of tools and context that are added and removed as a unit.

Registration is all or nothing, and tool names are unique across all scopes of an agent. A predicate
or context function that raises is logged: its scope, or its section, is left out.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextvars import ContextVar
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias
from weakref import WeakSet

import msgspec

from hookline._base.errors import ScopeError
from hookline._base.forks import lock_for_forks
from hookline._base.frozen import ReadOnly
from hookline._base.json import json_text, to_json_data
from hookline._base.lists import as_tuple
from hookline._base.log import log_throw, logger
from hookline._base.run import ChatPort, Run
from hookline._tools.callables import is_async_callable
from hookline._tools.tool import (
    AnyTool,
    Enabled,
    ToolLike,
    as_tool,
    with_run,
)

Context: TypeAlias = Callable[[], Any] | Callable[[Run[Any]], Any]
"""A function that returns text or JSON data for the model. It may also take no parameter."""


class Scope(ReadOnly):
    """A named bundle: tools, a section of context, and a switch for both.

    `context(run)` is called at each step. The returned text or JSON data is added to the system
    text, under the heading `title`. With `inject="user"`, it is added to the last user message of
    the request instead. This section is never stored. `enabled(run)` returns whether the whole
    scope is on. Both functions may also take no parameter. Raises ScopeError for an empty label,
    two tools of the same name, or an async function.
    """

    __slots__ = (
        "__weakref__",
        "context",
        "enabled",
        "inject",
        "is_on",
        "label",
        "section",
        "title",
        "tools",
    )

    label: str
    """The label, unique among the agent's scopes."""
    title: str
    """The heading of the scope's context."""
    tools: tuple[AnyTool, ...]
    """The tools that are offered to the model while the scope is on."""
    context: Context | None
    """Called at each step; returns the context to add."""
    section: Callable[[Run[Any]], Any] | None
    """The `context` function in a form that always takes the run."""
    enabled: Enabled | None
    """Called at each request and tool call; returns whether the scope is on."""
    is_on: Callable[[Run[Any]], object] | None
    """The `enabled` function in a form that always takes the run."""
    inject: Literal["system", "user"]
    """Where the context is added: to the system text, or to the last user message."""

    def __init__(
        self,
        label: str,
        *,
        tools: Iterable[ToolLike] = (),
        context: Context | None = None,
        enabled: Enabled | None = None,
        inject: Literal["system", "user"] = "system",
        title: str | None = None,
    ) -> None:
        if not label:
            raise ScopeError(f"label={label!r} is empty; pass a label for the scope")
        for name, value in (("context", context), ("enabled", enabled)):
            if value is not None and is_async_callable(value):
                raise ScopeError(
                    f"scope {label!r}: {name}= is called in the middle of a step and cannot be "
                    "async; pass a sync function, and fetch its data elsewhere"
                )
        self._set(
            label=label,
            title=title or label,
            tools=tuple(as_tool(tool) for tool in as_tuple("tools", tools)),
            context=context,
            section=with_run(context),
            enabled=enabled,
            is_on=with_run(enabled),
            inject=inject,
        )
        names = [tool.name for tool in self.tools]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ScopeError(
                f"scope {label!r} has two tools named "
                f"{', '.join(map(repr, doubled))}; give one of them another name"
            )

    if not TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self:
            """Return a copy with changes to label, title, tools, context, enabled or inject."""
            names = ("label", "title", "tools", "context", "enabled", "inject")
            return Scope(**{**{name: getattr(self, name) for name in names}, **changes})

    def __repr__(self) -> str:
        names = ", ".join(tool.name for tool in self.tools)
        return f"<Scope {self.label!r}: {names or 'no tools'}>"

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            label: str = ...,
            tools: Iterable[ToolLike] = ...,
            context: Context | None = ...,
            enabled: Enabled | None = ...,
            inject: Literal["system", "user"] = ...,
            title: str = ...,
        ) -> Self: ...


def holds(which: AnyTool | Scope, run: Run[Any]) -> bool:
    """Return whether a tool or a scope is on; a predicate that raises is logged and means off."""
    if which.is_on is None:
        return True
    try:
        answer: object = which.is_on(run)
        if isawaitable(answer):  # an awaitable would always count as True
            raise TypeError("enabled() returned an awaitable; make it return a bool")
        return bool(answer)
    except (Exception, CancelledError) as exc:  # nothing is awaited, so this is not a cancellation
        name = f"scope {which.label!r}" if isinstance(which, Scope) else f"tool {which.name!r}"
        log_throw(f"{name}.enabled() raised an exception, so it is treated as off", exc)
        return False


def allows(tool: AnyTool, scope: Scope, chat: ChatPort, call_id: str) -> bool:
    """Return whether a call may use the tool: the tool and its scope are on now."""
    run: Run[Any] = Run(chat, call_id)
    return holds(scope, run) and holds(tool, run)


class Sections(msgspec.Struct, frozen=True):
    """The context sections of one request."""

    system: str
    user: str


NO_SECTIONS = Sections("", "")


Observer = Callable[[str, Scope], Iterable[Callable[[], Awaitable[None]]]]


LOCK: Final = lock_for_forks()  # held only briefly, so one lock is enough for all scopes
_telling: ContextVar[Observers | None] = ContextVar("hookline_telling", default=None)


class Observers:
    """The async observers of one agent's scopes that a chat has yet to call."""

    __slots__ = ("_running", "waiting")

    def __init__(self) -> None:
        self.waiting: tuple[Callable[[], Awaitable[None]], ...] = ()
        """What is to be called, in this order."""
        self._running: asyncio.Future[None] | None = None  # pending while a chat runs observers

    async def tell(self) -> None:
        """Run the observers, before the next chat or step.

        If another chat is already running them, wait for it, except in an observer's own chat.
        """
        if _telling.get() is self:
            return
        loop = asyncio.get_running_loop()
        while True:
            with LOCK:
                if not self.waiting:
                    return
                observer, running = self.waiting[0], self._running
                turn = loop.create_future()
                if running is None:
                    self._running = turn
            if running is not None:
                if running.get_loop() is not loop:
                    return  # the other chat is in another thread, so this one cannot wait for it
                await asyncio.wait([running])
                continue
            token = _telling.set(self)
            try:
                await observer()
            finally:
                _telling.reset(token)
                # Whatever it raised, it is not run again, and chats that wait for it go on.
                with LOCK:
                    self.waiting = self.waiting[1:]
                    self._running = None
                turn.set_result(None)


class Scopes:
    """The scopes of one agent. `observer` is called after each registration and removal."""

    def __init__(self, observer: Observer | None = None) -> None:
        self.observers = Observers()
        """The observers that the next step of a chat tells."""
        self._observer = observer
        self._followers: WeakSet[Scopes] = WeakSet()
        self._place({})

    def follow(self) -> None: ...

    def __iter__(self) -> Iterator[Scope]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, label: str) -> Scope | None:
        """Return the scope with this label, or None."""
        return next((scope for scope in self if scope.label == label), None)

    def register(self, scope: Scope) -> Callable[[], object]:
        """Add a scope; returns a disposer that removes only this scope, never a later scope.

        If the label or a tool's name is taken, raises ScopeError and changes nothing.
        """
        token = object()
        with LOCK:
            self._check(scope)
            self._place({**self._entries, token: scope})
        self._tell("onScopeRegister", scope)
        return lambda: self._remove(token)

    def replace(self, label: str, scope: Scope) -> Callable[[], object]:
        """Replace the scope with this label atomically; returns the disposer of the new scope.

        Each request has either the old scope or the new scope. Observers are notified of a removal
        and of a registration. If there is no scope with this label, or if another scope uses the
        new label or the name of a new tool, raises ScopeError and changes nothing.
        """
        token = object()
        with LOCK:
            old = self.get(label)
            if old is None:
                raise ScopeError(
                    f"there is no scope {label!r} to replace; use register() to add a new scope"
                )
            self._check(scope, old)
            items = self._entries.items()
            self._place(dict((token, scope) if item[1] is old else item for item in items))
        self._tell("onScopeUnregister", old)
        self._tell("onScopeRegister", scope)
        return lambda: self._remove(token)

    def _check(self, scope: Scope, old: Scope | None = None) -> None:
        """Raise if a scope other than `old` uses the label or a tool's name."""
        if (other := self.get(scope.label)) is not None and other is not old:
            raise ScopeError(f"there is already a scope {scope.label!r}; remove it first")
        for tool in scope.tools:
            owner = self.tools[tool.name][1] if tool.name in self.tools else None
            if owner is not None and owner is not old:
                raise ScopeError(
                    f"scope {scope.label!r} cannot be registered: tool {tool.name!r} "
                    f"is taken by scope {owner.label!r}; give one of them another name"
                )

    def unregister(self, label: str) -> bool:
        """Remove the scope with this label; returns False if there is none."""
        tokens = [token for token, scope in self._entries.items() if scope.label == label]
        return bool(tokens) and self._remove(tokens[0])

    def _remove(self, token: object) -> bool:
        with LOCK:
            entries = dict(self._entries)
            if (scope := entries.pop(token, None)) is None:
                return False
            self._place(entries)
        self._tell("onScopeUnregister", scope)
        return True

    def _place(self, entries: dict[object, Scope]) -> None:
        """Set the scopes, each with the token of its registration.

        A disposer removes its token, because the same scope may have been registered again. The
        dicts are replaced and never changed: chats in other threads read them without the lock.
        """
        scopes = entries.values()
        self._entries = entries
        self.tools: dict[str, tuple[AnyTool, Scope]] = {
            tool.name: (tool, scope) for scope in scopes for tool in scope.tools
        }
        self._all_tools = tuple(tool for tool, _ in self.tools.values())
        # Most agents have no predicates and no context; their requests cost nothing here.
        self._plain = all(
            scope.enabled is None
            and scope.context is None
            and all(tool.enabled is None for tool in scope.tools)
            for scope in scopes
        )
        for scopes_of_chat in list(self._followers):  # last, because they read what is set above
            scopes_of_chat.follow()

    def _tell(self, point: str, scope: Scope) -> None:
        # Called without LOCK, which is held only briefly: observers run user code.
        if self._observer is not None:
            late = tuple(self._observer(point, scope))
            with LOCK:
                self.observers.waiting = (*self.observers.waiting, *late)

    # ── used by the loop ────────────────────────────────────────────────────────────────────────

    def tools_for(self, run: Run[Any]) -> tuple[AnyTool, ...]:
        """The tools that are on now, in order of registration."""
        if self._plain:
            return self._all_tools
        return tuple(
            tool
            for scope in self
            if holds(scope, run)
            for tool in scope.tools
            if self.tools[tool.name][0] is tool and holds(tool, run)
        )

    def find(self, name: str) -> tuple[AnyTool, Scope] | None:
        """Return the tool with this name, on or off, and its scope."""
        return self.tools.get(name)

    def on(self, chat: ChatPort) -> tuple[tuple[AnyTool, ...], Sections]:
        """Return the tools and the context sections that are on now, for a request."""
        if self._plain:
            return self._all_tools, NO_SECTIONS
        run: Run[Any] = Run(chat)
        return self.tools_for(run), self._sections(run)

    def _sections(self, run: Run[Any]) -> Sections:
        texts: dict[str, list[str]] = {"system": [], "user": []}
        for scope in self:
            if scope.section is None or not holds(scope, run):
                continue
            try:
                value = scope.section(run)
                text = value if isinstance(value, str) else json_text(to_json_data(value))
            except (Exception, CancelledError) as exc:
                log_throw(f"scope {scope.label!r}.context() failed; the section was left out", exc)
                continue
            if value is not None and text:
                texts[scope.inject].append(f"## {scope.title}\n{text}")
        return Sections("\n\n".join(texts["system"]), "\n\n".join(texts["user"]))


_OWN: Final = object()  # the token of each chat's own scope


class ChatScopes(Scopes):
    """The scopes of an agent in one chat that has its own tools, as the scope `chat`.

    They follow later changes of the agent's scopes. Raises ScopeError if the agent already has a
    tool with the same name, unless `hides`. If such a tool is registered later, it is hidden in
    this chat.
    """

    def __init__(self, agents: Scopes, own: Scope, *, hides: bool = False) -> None:
        super().__init__()
        self.observers = agents.observers  # the agent's observers do not depend on one chat
        self._hidden_names: set[str] = set()
        self._agents = agents
        self._own = own
        with LOCK:
            if not hides:
                agents._check(own)
            agents._followers.add(self)
            self.follow()

    def follow(self) -> None:
        """Take over the current scopes of the agent."""
        # The chat's own scope is the last, so its tools win. Nothing removes it.
        self._place({**self._agents._entries, _OWN: self._own})
        names = {tool.name for tool in self._own.tools} & self._agents.tools.keys()
        for name in sorted(names - self._hidden_names):
            logger.warning("tool %r was registered, but a chat's own tool hides it", name)
        self._hidden_names = names
