"""`Agent`: configuration, hooks and scopes. An agent holds no conversation and no chat state.

This module assembles the parts of a chat and hands them to the loop. The methods that start a chat
are in `_chat_methods.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from math import inf
from typing import Any, Self, TypeVar, cast, overload

from msgspec import UNSET

from hookline._base.errors import ToolCallError, UsageError
from hookline._base.events import ChatEvent
from hookline._base.input import as_message
from hookline._base.lists import as_tuple
from hookline._base.messages import Message
from hookline._base.patterns import unmatched
from hookline._base.returns import Answer, MessageChanges, OutT
from hookline._base.run import DepsT, Run
from hookline._chat.config import (
    DEFAULT_LIMITS,
    Approver,
    ChatInput,
    Config,
    Given,
    Limits,
    OutputValidator,
    SystemText,
    check_chat_id,
    check_retries,
    for_chat,
)
from hookline._chat.speaker import (
    HANDOFFS,
    SUB_AGENT,
    Speaker,
    check_output,
    handoff_tool,
    speakers_points,
)
from hookline._chat.state import Chat, new_chat
from hookline._chat.update import update_message
from hookline._chat_methods import Chats
from hookline._conversations.conversation import Conversation
from hookline._conversations.store import Store
from hookline._hooks.bus import HookBus, NullBus, View, global_bus, listed
from hookline._hooks.declared import (
    HookDef,
    HookLike,
    HooksArgument,
    define,
    definitions,
    expand,
    hooks_of,
)
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
from hookline._hooks.points import OnScopeRegister, OnScopeUnregister
from hookline._hooks.registration import OWNER, HookInfo
from hookline._hooks.scope_hooks import notify_of_scope
from hookline._hooks.sources import DEFAULT_TELEMETRY, HookSource
from hookline._hooks.subscribe import Overflow, Subscription
from hookline._hooks.typed import AddHook, DefineHook, HookDecorator
from hookline._hooks.views import (
    Sources,
    for_sub_agent,
    inherited_points,
    only_required,
    sources_of,
)
from hookline._model.model import DEFAULT_SETTINGS, Model, Settings
from hookline._model.output import form_of
from hookline._record.runtime import LOCAL, Runtime
from hookline._resolve import model_of, store_of
from hookline._tools.scopes import Scope, Scopes
from hookline._tools.tool import AnyTool, Tool, ToolLike

define_hook = cast("DefineHook", define)
"""Declare a hook for later: call `define_hook(point, hook, id=…)`, or use it as a decorator.

It returns a HookDef. Without `hook`, it returns a decorator for a function or method. Pass the
HookDef to `Agent(hooks=[…])`, `chat(hooks=[…])` or `agent.use()`. The options are those of
`add_hook`, plus `id` and `required`. Raises HookOptionError if the hook or an option does not fit
the point.
"""
E = TypeVar("E")


class Agent(Chats[DepsT, OutT]):
    """An agent: a model, its tools, and the hooks around everything that happens.

    `Agent[Deps](...)` sets the type of `deps=` in chats, and of `run.deps` in hooks and tools.
    Raises UsageError if an argument cannot work: an object that is not a model or a store, an
    `output=` type that cannot be built from JSON, or a hook that does not fit its point.

    Args:
        model: A Model, or the name of a model with its provider, such as "anthropic:claude-…".
        name: The agent's name in traces, logs and `run.agent`.
        system: The system text, or a function that takes the run and returns the text. The function
            is called at each step.
        tools: Tools, or functions that become tools.
        scopes: Bundles of tools and context that are added and removed together.
        hooks: A dict of points and their functions, or a list of hook definitions and ids. These
            hooks are registered on the agent. A chat can add hooks with `hooks=`, or replace the
            agent's hooks with `only_hooks=`. A chat cannot replace hooks that are marked
            `required`.
        known_hooks: Hook definitions that a chat may refer to by id. These hooks are not registered
            on the agent.
        output: The type of the answer; the value is in `response.output`. If a type checker cannot
            infer the type (for example, a union), write `Agent[Deps, A | B](…, output=A | B)`.
        output_retries: How many times in one chat the model may correct an invalid answer.
        output_validators: Functions that check an answer that already has the right type, or the
            text of an answer if there is no `output=`. Each function is called with the answer, and
            also with the run if the function takes a second argument. If a function raises a
            ValueError, the text of the error is sent to the model.
        settings: Settings of model calls, such as `temperature`.
        limits: Limits on steps, tool calls, bytes and times; limits that are not set keep their
            defaults.
        parallel_tools: Whether the tool calls of one answer run in parallel.
        approver: A function that answers the question if a hook returns Ask. Without an approver,
            the question waits in the conversation.
        store: The store for conversations that are opened by their id: a Store, or a URL such as
            "sqlite:///chats.db".
        bus: The bus on which hooks are registered. By default, each agent has its own HookBus.
            Agents with the same bus share all hooks and events of that bus.
        global_hooks: If False, the agent does not use the hooks and subscribers of
            `hookline.global_bus`.
        runtime: The runtime that runs the steps of a chat. A durable runtime makes chats durable.
        telemetry: The telemetry that traces the chats. By default, OpenTelemetry traces the chats
            if the process has an OpenTelemetry SDK. None turns tracing off.
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
        """The agent's name in traces, logs and `run.agent`."""
        self.bus: HookBus[DepsT] = bus if bus is not None else HookBus()
        """The bus that the agent's hooks are registered on; other agents may share it."""
        self.scopes = Scopes(self._scope_hooks)
        """The agent's scopes: `register(scope)`, `unregister(label)`, and iteration."""
        self._approver = approver
        self._made_store = isinstance(store, str)
        self._store = store_of(store)
        self._telemetry = None if isinstance(self.bus, NullBus) else telemetry
        self._sources = sources_of(self.bus, with_global=global_hooks)
        self._plain = View(*self._sources)  # the view of a chat that adds no hooks of its own
        self._traced: tuple[HookBus[Any], View] | None = None  # the same view, with telemetry
        self._config = Config(
            name=name,
            model=model_of(model),
            scopes=self.scopes,
            system=system,
            settings=settings,
            limits=limits.over(DEFAULT_LIMITS),
            parallel_tools=parallel_tools,
            runtime=runtime,
            output=None if output is None else form_of(output),
            output_retries=check_retries(output_retries),
            output_validators=as_tuple("output_validators", output_validators),
        )
        self._plugins: list[Uninstall] = []
        self._known = definitions(hooks, definitions(as_tuple("known_hooks", known_hooks)))
        for hook in expand(hooks, self._known, origin="agent"):
            self.bus.enter(hook)
        own = as_tuple("tools", tools)
        if own:
            self.scopes.register(Scope("agent", tools=own))
        for scope in as_tuple("scopes", scopes):
            self.scopes.register(scope)

    @property
    def runtime(self) -> Runtime:
        """The runtime that runs the steps of a chat."""
        return self._config.runtime

    @property
    def model(self) -> Model:
        """The model that the agent calls, unless a hook or a chat chooses another."""
        return self._config.model

    @property
    def store(self) -> Store | None:
        """The store for conversations that are opened by their id."""
        return self._store

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Remove all plugins, wait for their cleanup, and close the agent's own store.

        If `store` was passed as a URL, the agent owns the store.
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
        """`add_hook(point, hook, *, priority=0, name=None, tools=None, timeout=None,
        on_error="raise", inherit=None, guard=False)` adds a hook at a point and returns its
        disposer, which removes only this registration.

        `point` is the name of a point, such as "preToolCall", or the class of its context. The page
        "The hook points" of the documentation lists all points and options. Raises UnknownHookError
        for an unknown point. Raises HookOptionError for an unknown option, or an option that does
        not fit the point.
        """
        return self.bus.add_hook

    @property
    def hook(self) -> HookDecorator[DepsT]:
        """The decorator form of `add_hook`."""
        return self.bus.hook

    def hooks(self, point: object = None) -> tuple[HookInfo, ...]:
        """List the hooks at one point or at all points, in firing order, including global hooks.

        A hook that this agent leaves out has the reason in `off`.
        """
        return tuple(
            each.replace(
                unmatched=unmatched(each.tools or (), self.scopes.tools), off=self._off(each.origin)
            )
            for each in listed((global_bus, self.bus), point)
        )

    def _off(self, origin: str) -> str | None:
        """The option of this agent that leaves out hooks of this origin."""
        if isinstance(self.bus, NullBus):
            return "bus=NullBus()"
        opted_out = all(bus is not global_bus for bus, _ in self._sources)
        return "global_hooks=False" if origin == "global" and opted_out else None

    async def use(
        self, plugin: SetUp[Agent[DepsT]] | PluginObject | HookLike, *, name: str | None = None
    ) -> Uninstall:
        """Add a plugin; returns a handle that removes everything that the plugin has added.

        A plugin can be a sync or async function that is called with the agent and may return a
        cleanup function. A plugin can also be an object that has hooks, tools, scopes or methods
        with the decorator `@define_hook`. Hooks made by `define_hook` or `hookline.hooks` are
        plugins too. If a plugin raises an exception, everything that the plugin has added is
        removed. Raises UsageError for anything else.
        """
        undo = Uninstall(name or name_of(plugin))
        self._plugins = [*(each for each in self._plugins if not each.gone), undo]
        with noted(undo):
            if isinstance(plugin, (HookDef, str, list, tuple)):
                self._declare([plugin], undo)
            elif brings(plugin):
                brought: Any = plugin
                for scope in as_tuple("scopes", getattr(brought, "scopes", ())):
                    self.scopes.register(scope)
                tools = as_tuple("tools", getattr(brought, "tools", ()))
                if tools:
                    self.scopes.register(Scope(undo.name, tools=tools))
                self._declare(hooks_of(brought), undo)
            elif callable(plugin):
                await set_up(plugin, self, undo)
            else:
                raise UsageError(
                    f"{plugin!r} is not a plugin; pass a function that takes the agent, or an "
                    "object with hooks, tools or scopes"
                )
        return undo

    def _declare(self, hooks: HooksArgument, undo: Uninstall) -> None:
        """Register a plugin's hooks; their ids stay known until the plugin is removed."""
        known = definitions(hooks, dict(self._known))  # a copy, since a hook may be refused below
        new = known.keys() - self._known.keys()
        for hook in expand(hooks, known, origin=undo.origin):
            hook.declared = False  # as after add_hook, they run in every chat
            self.bus.enter(hook)
        self._known.update(known)
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
        """Return an iterator over the events of all this agent's chats. Read it in another task.

        The iterator buffers at most `size` events. If the buffer overflows, the iterator either
        closes, or drops and counts the oldest events.
        """
        subscription = self.bus.subscribe(*types, size=size, overflow=overflow)
        owner = OWNER.get()
        if owner is not None:
            owner.note(subscription.close)
        return subscription

    def _scope_hooks(self, point: str, scope: Scope) -> list[Callable[[], Awaitable[None]]]:
        """Notify the scope observers: sync ones now, async ones before the next chat or step."""
        ctx: Any = OnScopeRegister(scope=scope)
        owner = OWNER.get()
        if point == "onScopeUnregister":
            ctx = OnScopeUnregister(scope=scope)
        elif owner is not None:
            owner.note(partial(self._drop_scope, scope))
        return notify_of_scope(self._plain, point, ctx)

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
        """Change a message of a conversation; returns the new message.

        The hooks at `preMessageUpdate` and `onMessageUpdate` run. The keywords are the same as for
        `chat`. If the message does not exist or the changes do not fit it, raises UsageError and
        changes nothing. Raises ConversationBusyError if a chat is running.
        """
        given = Given(
            conversation=conversation, deps=deps, state=state, hooks=hooks, only_hooks=only_hooks
        )
        asked = self._begin(None, given)
        return await update_message(new_chat(*asked, None), message_id, changes)

    def _begin(
        self, input: Any, given: Given, answers: Mapping[str, Answer] | None = None
    ) -> tuple[Config, ChatInput]:
        if given.release not in ("live", "response"):
            raise UsageError(f"release={given.release!r} must be 'live' or 'response'")
        if given.chat_id is not None:
            check_chat_id(given.chat_id)
        model = None if given.model is None else model_of(given.model)
        view = self._view(given.hooks, given.only_hooks)
        chat_input = ChatInput(
            chat_id=given.chat_id or self._config.runtime.new_id(),
            named=given.chat_id is not None,
            view=view,
            guards=view.guards,
            only_hooks=given.only_hooks is not None,
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
            for_speaker=partial(for_chat, given=given, model=model, speaks_later=True),
        )
        return for_chat(self._config, given, model), chat_input

    def _conversation(self, given: Any) -> Conversation | None:
        """Return the conversation that was passed, or the stored one with the given id."""
        if isinstance(given, str):
            if self._store is None:
                raise UsageError(
                    f"conversation={given!r} is the id of a stored conversation, but the agent has "
                    "no store; pass a Conversation, or give the agent store=MemoryStore()"
                )
            return Conversation.at(self._store, given)
        if given is None or isinstance(given, Conversation):
            return given
        raise UsageError(f"conversation={given!r} must be a Conversation or its id")

    def _tracing(self, beside: Iterable[object] = ()) -> HookBus[Any] | None:
        """The telemetry hooks of a chat; they depend on which points have other hooks."""
        if self._telemetry is None:
            return None
        used = [key for bus, _ in self._sources for key in bus.used()]
        if self.scopes.get(HANDOFFS) is not None:  # another agent may go on with the chat
            used += speakers_points(self._config)
        return self._telemetry.bus_for_chat((*used, *beside))

    def _view(self, hooks: HooksArgument | None, only: HooksArgument | None) -> View:
        """The hooks that run in a chat: the agent's, and those passed to the chat."""
        if hooks is not None and only is not None:
            raise UsageError(
                "pass hooks= or only_hooks=, not both: hooks= adds hooks to the agent's hooks, and "
                "only_hooks= replaces the agent's declared hooks"
            )
        given = hooks if only is None else only
        if given is None:
            tracing = self._tracing()
            if tracing is None:
                return self._plain
            # Kept for the next chats, because each new view is registered at all its buses.
            if self._traced is None or self._traced[0] is not tracing:
                self._traced = tracing, View(*self._sources, (tracing, None))
            return self._traced[1]
        known = definitions(given, dict(self._known))  # a copy: the ids count in this chat only
        own = self.bus.sibling()  # on a NullBus, the hooks of a chat do not run either
        brought = expand(given, known, origin="chat")
        for hook in brought:
            own.enter(hook)
        sources = self._sources if only is None else only_required(self._sources)
        view = self._view_of((*sources, (own, None)), own.used())
        required = [each.options for each in brought if each.options.required]
        view.guards = tuple(dict.fromkeys(each.id or each.name for each in required))
        return view

    def _view_of(self, sources: Sources, beside: Iterable[object]) -> View:
        """A view of these sources and of the telemetry hooks."""
        tracing = self._tracing(beside)
        return View(*sources) if tracing is None else View(*sources, (tracing, None))

    # ── as a tool of another agent ──────────────────────────────────────────────────────────

    def as_tool(
        self, *, name: str | None = None, description: str | None = None, max_depth: int = 3
    ) -> AnyTool:
        """Return a tool that runs this agent: each call is a new chat without a conversation.

        The tool's result is the answer's text. If the agent has `output=`, the result is the output
        as JSON. The chat gets the parent's deps and approver, and those of the parent's hooks that
        have `inherit=True`. Agents may be nested at most `max_depth` levels below the first agent;
        a deeper call fails with a tool error. Raises UsageError if `max_depth` is below 1.
        """
        if max_depth < 1:
            raise UsageError(f"max_depth={max_depth!r} must be at least 1")

        async def ask(input: str, run: Run[Any]) -> Any:
            parent = Run.chat_of(run)
            assert isinstance(parent, Chat)
            if _depth(parent) > max_depth:
                raise ToolCallError(
                    f"agent {self.name!r} was not called, because agents may be nested at most "
                    f"{max_depth} levels below the first one; answer without this agent"
                )
            chat_input = ChatInput(
                chat_id=self._config.runtime.new_id(),
                view=self._view_of(
                    for_sub_agent(parent.view, self._sources), inherited_points(parent.view)
                ),
                message=as_message(input),
                conversation=None,
                deps=parent.deps,
                approver=parent.input.approver or self._approver,
                release=parent.input.release,
                parent=parent,
                call_id=run.call_id,
            )
            response = await self._collect((self._config, chat_input))
            formed = self._config.output is not None and response.stop_reason is None
            return response.output if formed else response.text

        setattr(ask, SUB_AGENT, self._config)
        about = description or f"Ask the agent {self.name!r}; `input` is the question or task."
        return Tool(ask, name=name or _tool_name(self.name), description=about, timeout=inf)

    def handoffs(self, *agents: Agent[DepsT, OutT]) -> Callable[[], object]:
        """Give the model one tool for each agent; the tool hands the conversation to the agent.

        From the next step on, the chat uses the new agent's model, system text, tools, settings and
        scopes, except those that the chat itself names. The answer has the `output=` type of this
        agent, or of the chat. The hooks of this agent still run; the new agent's hooks run after
        them. The conversation remembers the current agent. The returned disposer removes the tools.
        Raises UsageError if one of these agents has the name of this agent, or another `output=`.
        Raises ScopeError if this agent already has handoffs.
        """
        for agent in agents:
            if agent.name == self.name:
                raise UsageError(
                    f"agent {self.name!r} cannot hand over to an agent of the same name; give one "
                    "of them another name="
                )
            check_output(self._config, agent._config)
        tools = [
            handoff_tool(Speaker(each._config, each.bus), _tool_name(f"transfer_to_{each.name}"))
            for each in agents
        ]
        return self.scopes.register(Scope(HANDOFFS, tools=tools))

    def __repr__(self) -> str:
        return f"<Agent {self.name!r}>"


def _depth(parent: Chat) -> int:
    """The number of agents from the first agent down to a sub-agent of this chat."""
    depth = 1
    while parent.input.parent is not None:
        parent, depth = parent.input.parent, depth + 1
    return depth


def _tool_name(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)[:64]
