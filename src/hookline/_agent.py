"""`Agent`: configuration, hooks and scopes. It holds no conversation and no state of any chat.

What a chat needs is put together here and handed to the loop; the ways into a chat are in
`_asks.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from inspect import isawaitable
from math import inf
from time import perf_counter
from typing import Any, Self, TypeVar, cast, overload

from msgspec import UNSET

from hookline._asks import Chats
from hookline._base.errors import ToolCallError, UsageError
from hookline._base.events import ChatEvent
from hookline._base.input import as_message
from hookline._base.log import log_throw
from hookline._base.messages import Message
from hookline._base.returns import Decision, MessageChanges, OutT
from hookline._base.run import DepsT, Run
from hookline._base.runtime import LOCAL, Runtime
from hookline._chat.config import (
    DEFAULT_LIMITS,
    Approver,
    Config,
    Given,
    Limits,
    OutputValidator,
    SystemText,
    Task,
    check_chat_id,
    check_retries,
    for_chat,
)
from hookline._chat.speaker import Speaker, handoff_tool
from hookline._chat.state import Chat, new_chat
from hookline._chat.update import update_message
from hookline._hooks.bus import HookBus, NullBus, View, listed
from hookline._hooks.call_rules import fault
from hookline._hooks.declared import (
    HookDef,
    HookLike,
    HooksArgument,
    define,
    definitions,
    expand,
    hooks_of,
)
from hookline._hooks.on_hook import watcher
from hookline._hooks.plugins import (
    PluginObject,
    SetUp,
    Uninstall,
    brings,
    close_all,
    name_of,
    noted,
    set_up,
)
from hookline._hooks.points import HookOutcome, OnScopeRegister, OnScopeUnregister
from hookline._hooks.registration import OWNER, HookInfo
from hookline._hooks.sources import DEFAULT_TELEMETRY, HookSource
from hookline._hooks.subscribe import Overflow, Subscription
from hookline._hooks.typed import AddHook, DefineHook, HookDecorator
from hookline._hooks.views import (
    Sources,
    for_sub_agent,
    inherited_points,
    observe,
    only_required,
    sources_of,
)
from hookline._model.model import DEFAULT_SETTINGS, Model, Settings
from hookline._model.output import form_of
from hookline._model.scopes import Scope, Scopes
from hookline._model.tool import AnyTool, Tool, ToolLike
from hookline._resolve import resolve_model, resolve_store
from hookline._talk.conversation import Conversation
from hookline._talk.store import Store

define_hook = cast("DefineHook", define)
"""Declare a hook for later: `define_hook(point, fn, id=…)`, or the decorator of a function.

It gives a HookDef, for `Agent(hooks=[…])`, `chat(hooks=[…])` and `agent.use()`. Options are those
of `add_hook`, and `id` and `required`. Raises HookOptionError for what does not fit the point.
"""
E = TypeVar("E")


class Agent(Chats[DepsT, OutT]):
    """An agent: a model, its tools, and the hooks around everything that happens.

    `Agent[Deps](...)` types the `deps=` of its chats and what hooks and tools see of them. Raises
    UsageError for what cannot work: what is not a model or a store, an `output=` that JSON cannot
    be converted to, hooks that do not fit.

    Args:
        model: A Model, or the name of one with its provider, such as "anthropic:claude-…".
        name: What traces, logs and `run.agent` call it.
        system: The system text, or a function of the run that gives it, asked at each step.
        tools: Tools, or functions to be made one.
        scopes: Bundles of tools and context that come and go as one.
        hooks: A table of points and functions, or definitions and ids. They count as registered
            here. A chat adds its own with `hooks=`; its `only_hooks=` replaces these, except those
            that are `required`.
        known_hooks: Definitions that may be named by their id and are not registered.
        output: The type that answers are to have, which are then `response.output`. Where a type
            checker cannot infer it, as of a union, write `Agent[Deps, A | B](…, output=A | B)`.
        output_retries: How often in a chat the model may correct an answer that does not fit.
        output_validators: Functions that are given an answer that fits, and the run where they need
            a second argument; what they raise as ValueError is told to the model.
        settings: How the model is to answer.
        limits: Bounds of steps, tool calls, bytes and times; what it does not name is the default.
        parallel_tools: Whether the calls of an answer run side by side.
        approver: Who is asked where a hook returns Ask; without one the question waits in the
            conversation.
        store: Where conversations named by an id are kept: a Store, or a URL such as
            "sqlite:///chats.db".
        bus: Where hooks are registered; by default a HookBus of its own. Agents that share a bus
            share all its hooks and events, whichever of them added them.
        global_hooks: False keeps the hooks and subscribers of `hookline.global_bus` out.
        runtime: How the loop reaches the world; another one makes chats durable.
        telemetry: What traces chats; by default OpenTelemetry where the process has an SDK, None
            for nothing.
    """

    @overload
    def __init__(
        self,
        model: Model | str,
        *,
        name: str = "agent",
        system: SystemText = None,
        tools: Iterable[ToolLike] = (),
        scopes: Iterable[Scope] = (),
        hooks: HooksArgument = (),
        known_hooks: Iterable[HookDef] = (),
        output: type[OutT],
        output_retries: int = 1,
        output_validators: Iterable[OutputValidator] = (),
        settings: Settings = DEFAULT_SETTINGS,
        limits: Limits = DEFAULT_LIMITS,
        parallel_tools: bool = True,
        approver: Approver | None = None,
        store: Store | str | None = None,
        bus: HookBus[DepsT] | None = None,
        global_hooks: bool = True,
        runtime: Runtime = LOCAL,
        telemetry: HookSource | None = DEFAULT_TELEMETRY,
    ) -> None: ...
    @overload
    def __init__(
        self,
        model: Model | str,
        *,
        name: str = "agent",
        system: SystemText = None,
        tools: Iterable[ToolLike] = (),
        scopes: Iterable[Scope] = (),
        hooks: HooksArgument = (),
        known_hooks: Iterable[HookDef] = (),
        output: object = None,
        output_retries: int = 1,
        output_validators: Iterable[OutputValidator] = (),
        settings: Settings = DEFAULT_SETTINGS,
        limits: Limits = DEFAULT_LIMITS,
        parallel_tools: bool = True,
        approver: Approver | None = None,
        store: Store | str | None = None,
        bus: HookBus[DepsT] | None = None,
        global_hooks: bool = True,
        runtime: Runtime = LOCAL,
        telemetry: HookSource | None = DEFAULT_TELEMETRY,
    ) -> None: ...
    def __init__(
        self,
        model: Model | str,
        *,
        name: str = "agent",
        system: SystemText = None,
        tools: Iterable[ToolLike] = (),
        scopes: Iterable[Scope] = (),
        hooks: HooksArgument = (),
        known_hooks: Iterable[HookDef] = (),
        output: object = None,
        output_retries: int = 1,
        output_validators: Iterable[OutputValidator] = (),
        settings: Settings = DEFAULT_SETTINGS,
        limits: Limits = DEFAULT_LIMITS,
        parallel_tools: bool = True,
        approver: Approver | None = None,
        store: Store | str | None = None,
        bus: HookBus[DepsT] | None = None,
        global_hooks: bool = True,
        runtime: Runtime = LOCAL,
        telemetry: HookSource | None = DEFAULT_TELEMETRY,
    ) -> None:
        self.name = name
        """The name in traces, logs and `run.agent`."""
        self.bus: HookBus[DepsT] = bus if bus is not None else HookBus()
        """Where its hooks are; another agent may share it."""
        self.scopes = Scopes(self._scope_hooks)
        """`register(scope)` and `unregister(label)`; it can be iterated over."""
        self._approver = approver
        self._made_store = isinstance(store, str)
        self._store = _store_of(store)
        self._telemetry = None if isinstance(self.bus, NullBus) else telemetry
        self._sources = sources_of(self.bus, with_global=global_hooks)
        self._plain = View(*self._sources)  # what a chat looks at that brings no hooks
        self._traced: tuple[HookBus[Any], View] | None = None
        self._config = Config(
            name=name,
            model=_model_of(model),
            scopes=self.scopes,
            system=system,
            settings=settings,
            limits=limits.over(DEFAULT_LIMITS),
            parallel_tools=parallel_tools,
            runtime=runtime,
            output=None if output is None else form_of(output),
            output_retries=check_retries(output_retries),
            output_validators=tuple(output_validators),
        )
        self._plugins: list[Uninstall] = []
        self._known = definitions(hooks, definitions(list(known_hooks)))
        for hook in expand(hooks, self._known, origin="agent"):
            self.bus.enter(hook)
        own = list(tools)
        if own:
            self.scopes.register(Scope("agent", tools=own))
        for scope in scopes:
            self.scopes.register(scope)

    @property
    def runtime(self) -> Runtime:
        """How the loop reaches the world."""
        return self._config.runtime

    @property
    def store(self) -> Store | None:
        """Where conversations named by an id are kept."""
        return self._store

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Take back all plugins, wait until they have cleaned up, and close the agent's own store.

        The store is its own if it was given as a URL.
        """
        try:
            await close_all(self._plugins)
        finally:
            if self._made_store:
                closing: Any = self._store
                await closing.aclose()

    # ── hooks ───────────────────────────────────────────────────────────────────────────────

    @property
    def add_hook(self) -> AddHook[DepsT]:
        """Add a hook at a point; returns its disposer. docs/hooks.md lists the points."""
        return self.bus.add_hook

    @property
    def hook(self) -> HookDecorator[DepsT]:
        """The decorator form of `add_hook`."""
        return self.bus.hook

    def hooks(self, point: object = None) -> tuple[HookInfo, ...]:
        """All registrations in firing order, of one point or of all, global ones included."""
        return listed(tuple(bus for bus, _ in self._sources), point)

    async def use(
        self, plugin: SetUp[Agent[DepsT]] | PluginObject | HookLike, *, name: str | None = None
    ) -> Uninstall:
        """Add a plugin; returns what takes back all that it has added.

        It is a function of the agent, sync or async, which may return one that cleans up; or
        an object with hooks, tools or scopes, or with methods under `@define_hook`; or hooks as
        `define_hook` and `hookline.hooks` make them. When it raises, nothing of it stays. Raises
        UsageError for what is not a plugin.
        """
        undo = Uninstall(name or name_of(plugin))
        self._plugins = [*(each for each in self._plugins if not each.gone), undo]
        with noted(undo):
            if isinstance(plugin, (HookDef, str, list, tuple)):
                self._declare([plugin], undo)
            elif brings(plugin):
                brought: Any = plugin
                for scope in getattr(brought, "scopes", ()):
                    self.scopes.register(scope)
                tools = list(getattr(brought, "tools", ()))
                if tools:
                    self.scopes.register(Scope(undo.name, tools=tools))
                self._declare(hooks_of(brought), undo)
            elif callable(plugin):
                await set_up(plugin, self, undo)
            else:
                raise UsageError(
                    f"{plugin!r} is not a plugin: pass a function of the agent, or an object with "
                    "hooks, tools or scopes"
                )
        return undo

    def _declare(self, hooks: HooksArgument, undo: Uninstall) -> None:
        """Register a plugin's hooks; its ids are known for as long as it is there."""
        known = definitions(hooks, dict(self._known))
        new = known.keys() - self._known.keys()
        for hook in expand(hooks, known, origin=undo.origin):
            hook.declared = False  # as after add_hook, they run in every chat
            self.bus.enter(hook)
        self._known.update({id: known[id] for id in new})
        undo.note(lambda: [self._known.pop(id, None) for id in new])

    @overload
    def subscribe(
        self, *, size: int = 1024, overflow: Overflow = "close"
    ) -> Subscription[ChatEvent]: ...
    @overload
    def subscribe(
        self, *types: type[E], size: int = 1024, overflow: Overflow = "close"
    ) -> Subscription[E]: ...
    def subscribe(
        self, *types: type[Any], size: int = 1024, overflow: Overflow = "close"
    ) -> Subscription[Any]:
        """An iterator over the events of all chats of this agent, for any other task.

        It holds at most `size`; what overflows closes it, or drops the oldest and counts them.
        """
        subscription = self.bus.subscribe(*types, size=size, overflow=overflow)
        owner = OWNER.get()
        if owner is not None:
            owner.note(subscription.close)
        return subscription

    def _scope_hooks(self, point: str, scope: Scope) -> list[Callable[[], Awaitable[None]]]:
        """Tell the scope observers: sync ones now, async ones before the next chat or step."""
        ctx: Any = OnScopeRegister(scope=scope)
        owner = OWNER.get()
        if point == "onScopeUnregister":
            ctx = OnScopeUnregister(scope=scope)
        elif owner is not None:
            owner.note(partial(self._drop_scope, scope))
        view = self._plain
        late: list[Callable[[], Awaitable[None]]] = []
        for hook in getattr(view, point):
            if not hook.alive:
                continue
            start = perf_counter()
            value: Any = None
            outcome: HookOutcome = "ok"
            if not hook.is_async:
                try:
                    value = hook.fn(ctx)
                except BaseException as exc:
                    outcome = "raised"
                    log_throw(f"hook {hook.name!r} at {point} raised", fault(hook, exc))
            if hook.is_async or isawaitable(value):
                late.append(partial(observe, view, hook, ctx, value))
            elif view.onHook:
                spent = perf_counter() - start
                late.append(partial(watcher(view, None), hook, outcome, spent))
        return late

    def _drop_scope(self, scope: Scope) -> None:
        if self.scopes.get(scope.label) is scope:
            self.scopes.unregister(scope.label)

    # ── chats ───────────────────────────────────────────────────────────────────────────────

    async def update_message(
        self,
        conversation: Conversation | str,
        message_id: str,
        changes: MessageChanges,
        *,
        deps: DepsT | None = None,
        state: dict[str, Any] | None = None,
        hooks: HooksArgument | None = None,
        only_hooks: HooksArgument | None = None,
    ) -> Message:
        """Change a message of a conversation, through its hooks, and give it as it is now.

        The keywords are those of `chat`. Raises UsageError, with nothing changed, when there is no
        such message or the changes do not fit it, and ConversationBusyError while a chat runs.
        """
        given = Given(
            conversation=conversation, deps=deps, state=state, hooks=hooks, only_hooks=only_hooks
        )
        asked = self._begin(None, given)
        return await update_message(new_chat(*asked, None), message_id, changes)

    def _begin(
        self, input: Any, given: Given, answers: Mapping[str, Decision] | None = None
    ) -> tuple[Config, Task]:
        if given.release not in ("live", "response"):
            raise UsageError(f"release={given.release!r} must be 'live' or 'response'")
        if given.chat_id is not None:
            check_chat_id(given.chat_id)
        model = None if given.model is None else _model_of(given.model)
        task = Task(
            chat_id=given.chat_id or self._config.runtime.new_id(),
            named=given.chat_id is not None,
            view=self._view(given.hooks, given.only_hooks),
            message=None if input is None else as_message(input),
            conversation=self._conversation(given.conversation),
            deps=given.deps,
            settings=given.settings,
            approver=self._approver if given.approver is UNSET else given.approver,
            release=given.release,
            answers=None if answers is None else dict(answers),
            state=given.state,
            own_system=given.system is not None,
            own_tools=given.tools is not None,
        )
        return for_chat(self._config, given, model), task

    def _conversation(self, given: Any) -> Conversation | None:
        """The conversation that was passed, or the one that an id names in the store."""
        if isinstance(given, str):
            if self._store is None:
                raise UsageError(
                    f"conversation={given!r} names a stored conversation and the agent has no "
                    "store: pass a Conversation, or give the agent store=MemoryStore()"
                )
            return Conversation.at(self._store, given)
        if given is None or isinstance(given, Conversation):
            return given
        raise UsageError(f"conversation={given!r} must be a Conversation or its id")

    def _tracing(self, beside: Iterable[object] = ()) -> HookBus[Any] | None:
        """The hooks that telemetry brings into a chat; it has others at these points too."""
        if self._telemetry is None:
            return None
        used = (key for bus, _ in self._sources for key in bus.used())
        return self._telemetry.bus_for_chat((*used, *beside))

    def _view(self, hooks: HooksArgument | None, only: HooksArgument | None) -> View:
        """What runs in a chat: the agent's hooks, and those that the chat was given."""
        if hooks is not None and only is not None:
            raise UsageError(
                "hooks= adds to the agent's hooks and only_hooks= replaces the declared ones; "
                "pass one of the two"
            )
        given = hooks if only is None else only
        if given is None:
            tracing = self._tracing()
            if tracing is None:
                return self._plain
            if self._traced is None or self._traced[0] is not tracing:
                self._traced = tracing, View(*self._sources, (tracing, None))
            return self._traced[1]
        known = definitions(given, dict(self._known))
        own = self.bus.sibling()
        for hook in expand(given, known, origin="chat"):
            own.enter(hook)
        sources = self._sources if only is None else only_required(self._sources)
        return self._view_of((*sources, (own, None)), own.used())

    def _view_of(self, sources: Sources, beside: Iterable[object]) -> View:
        """A view of these sources and of what telemetry brings."""
        tracing = self._tracing(beside)
        return View(*sources) if tracing is None else View(*sources, (tracing, None))

    # ── as a tool of another agent ──────────────────────────────────────────────────────────

    def as_tool(
        self, *, name: str | None = None, description: str | None = None, max_depth: int = 3
    ) -> AnyTool:
        """This agent as a tool: its own chat, with no conversation, for each call.

        It gives the answer's text, or where the agent has `output=`, the output as JSON. Deps and
        approver are passed on; of the parent's hooks those with `inherit=True` follow. A call more
        than `max_depth` agents below the first one is a tool error. Raises UsageError
        where `max_depth` is below 1.
        """
        if max_depth < 1:
            raise UsageError(f"max_depth={max_depth!r} must be at least 1")

        async def ask(input: str, run: Run[Any]) -> Any:
            parent = Run.chat_of(run)
            assert isinstance(parent, Chat)
            if _depth(parent) > max_depth:
                raise ToolCallError(
                    f"agent {self.name!r} may be asked at most {max_depth} agents below the first; "
                    "answer without it"
                )
            task = Task(
                chat_id=self._config.runtime.new_id(),
                view=self._view_of(
                    for_sub_agent(parent.view, self._sources), inherited_points(parent.view)
                ),
                message=as_message(input),
                conversation=None,
                deps=parent.deps,
                approver=parent.task.approver or self._approver,
                release=parent.task.release,
                parent=parent,
                call_id=run.call_id,
            )
            response = await self._collect((self._config, task))
            formed = self._config.output is not None and response.stop_reason is None
            return response.output if formed else response.text

        about = description or f"Ask the agent {self.name!r}; `input` is what to ask."
        return Tool(ask, name=name or _tool_name(self.name), description=about, timeout=inf)

    def handoffs(self, *agents: Agent[DepsT]) -> Callable[[], object]:
        """Let the model hand the conversation over to these agents: a tool for each.

        From the next step on the chat has that agent's model, system text, tools, settings and
        scopes, and its hooks run after those of this agent, which go on. A conversation remembers
        who speaks. The disposer takes the tools back. Raises UsageError for an agent of the same
        name, and ScopeError where this agent has handoffs already.
        """
        for agent in agents:
            if agent.name == self.name:
                raise UsageError(
                    f"agent {self.name!r} cannot hand over to an agent of its own name; give one "
                    "of them another name="
                )
        tools = [
            handoff_tool(Speaker(each._config, each.bus), _tool_name(f"transfer_to_{each.name}"))
            for each in agents
        ]
        return self.scopes.register(Scope("handoffs", tools=tools))

    def __repr__(self) -> str:
        return f"<Agent {self.name!r}>"


def _model_of(given: Any) -> Model:
    model = resolve_model(given) if isinstance(given, str) else given
    if not isinstance(model, Model):
        raise UsageError(
            f"model={model!r} is not a Model: it needs a method stream(request) that gives an "
            "async iterator of chunks; or pass a name such as 'openai:gpt-…'"
        )
    return model


def _store_of(given: Any) -> Store | None:
    if isinstance(given, str):
        return resolve_store(given)
    if given is None or isinstance(given, Store):
        return given
    raise UsageError(
        f"store={given!r} is not a store: pass MemoryStore(), a URL such as 'sqlite:///chats.db', "
        "or what has the methods of hookline.storage.Store"
    )


def _depth(parent: Chat) -> int:
    """How many agents below the first one a chat asked by this one is."""
    depth = 1
    while parent.task.parent is not None:
        parent, depth = parent.task.parent, depth + 1
    return depth


def _tool_name(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)[:64]
