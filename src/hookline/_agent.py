"""`Agent`: configuration, hooks and scopes. An agent holds no conversation and no chat state.

This module assembles the parts of a chat and hands them to the loop. The methods that start a chat
are in `_chat_methods.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Self, TypeVar, cast, overload

import msgspec
from msgspec import UNSET

from hookline._base.errors import ToolCallError, UsageError
from hookline._base.events import ChatEvent
from hookline._base.input import Input, as_message
from hookline._base.lists import as_tuple
from hookline._base.messages import Message
from hookline._base.patterns import unmatched
from hookline._base.returns import Answer, MessageChanges, OutT, When
from hookline._base.run import DepsT, Run
from hookline._chat.child_history import ChildWaits, own_history
from hookline._chat.config import (
    DEFAULT_LIMITS,
    Approver,
    ChatInput,
    ChatOptions,
    Config,
    Limits,
    OutputValidator,
    SystemText,
    check_chat_id,
    check_retries,
    check_runtime,
    for_chat,
)
from hookline._chat.inbox import Interrupt, SentMessage
from hookline._chat.leading_tools import LeadingTool, Speaker, SubAgentTool
from hookline._chat.speaker import (
    HANDOFFS,
    check_output,
    handoff_tool,
    speakers_points,
)
from hookline._chat.state import Chat, new_chat
from hookline._chat.steering import send_to
from hookline._chat.update import update_message
from hookline._chat_methods import Chats
from hookline._conversations.conversation import Conversation
from hookline._conversations.store import Store
from hookline._hooks.bus import HookBus, NullBus, View, global_bus, hook_infos
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
    collecting,
    name_of,
    set_up,
)
from hookline._hooks.points import OnScopeRegister, OnScopeUnregister
from hookline._hooks.registration import OWNER, Hook, HookInfo
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
from hookline._tools.callables import is_async_callable
from hookline._tools.scopes import Scope, Scopes
from hookline._tools.tool import AnyTool, ProviderTool, ToolLike

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
        plugins: Objects with hooks, tools and scopes, as for `use()`. If such an object has an
            async method `aclose`, `agent.aclose()` calls it.
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
        plugins: Iterable[PluginObject] = (),
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
        plugins: Iterable[PluginObject] = (),
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
        plugins: Iterable[PluginObject] = (),
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
            runtime=check_runtime(runtime),
            output=None if output is None else form_of(output),
            output_retries=check_retries(output_retries),
            output_validators=as_tuple("output_validators", output_validators),
            store=self._store,
        )
        self._plugins: list[Uninstall] = []
        self._known_hooks = definitions(hooks, definitions(as_tuple("known_hooks", known_hooks)))
        for hook in expand(hooks, self._known_hooks, origin="agent"):
            self.bus.enter(hook)
        own = as_tuple("tools", tools)
        if own:
            self.scopes.register(Scope("agent", tools=own))
        for scope in as_tuple("scopes", scopes):
            self.scopes.register(scope)
        for plugin in as_tuple("plugins", plugins):
            if not brings(plugin):
                raise UsageError(
                    f"plugins= has {plugin!r}, which has no hooks, tools or scopes; pass a "
                    "function to agent.use() instead"
                )
            undo = self._uninstall(name_of(plugin))
            with collecting(undo):
                self._install(plugin, undo)

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

    @property
    def approver(self) -> Approver | None:
        """The function that answers the questions of hooks, in chats without one of their own."""
        return self._approver

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
        on_error="raise", inherit=None, guard=False, keeps_deltas=False, early=False,
        observes=False)` adds a hook at a point and returns its disposer, which removes only this
        registration.

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
            hook.replace(
                unmatched=unmatched(hook.tools or (), self.scopes.tools), off=self._off(hook.origin)
            )
            for hook in hook_infos((global_bus, self.bus), point)
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
        with the decorator `@define_hook`; if the object has an async method `aclose`, the method is
        called when the plugin is removed. Hooks made by `define_hook` or `hookline.hooks` are
        plugins too. If a plugin raises an exception, everything that the plugin has added is
        removed. Raises UsageError for anything else.
        """
        undo = self._uninstall(name or name_of(plugin))
        with collecting(undo):
            if isinstance(plugin, (HookDef, str, list, tuple)):
                self._declare([plugin], undo)
            elif brings(plugin):
                self._install(plugin, undo)
            elif callable(plugin):
                await set_up(plugin, self, undo)
            else:
                raise UsageError(
                    f"{plugin!r} is not a plugin; pass a function that takes the agent, or an "
                    "object with hooks, tools or scopes"
                )
        return undo

    def _uninstall(self, name: str) -> Uninstall:
        """Make the handle of a new plugin, and forget those of plugins that are gone."""
        undo = Uninstall(name)
        self._plugins = [*(plugin for plugin in self._plugins if not plugin.is_done), undo]
        return undo

    def _install(self, plugin: Any, undo: Uninstall) -> None:
        """Register the scopes, tools and hooks of an object."""
        own_tools: Any = getattr(plugin, "tools", ())
        tools = as_tuple("tools", own_tools)
        scopes = as_tuple("scopes", getattr(plugin, "scopes", ()))
        for scope in scopes:
            is_its_own = scope.label == undo.name  # the tools belong to the scope of that name
            extended = scope.replace(tools=(*scope.tools, *tools)) if is_its_own else scope  # pyright: ignore
            self.scopes.register(extended)
        if tools and all(scope.label != undo.name for scope in scopes):
            self.scopes.register(Scope(undo.name, tools=tools))
        self._declare(hooks_of(plugin), undo)
        close: Any = getattr(plugin, "aclose", None)
        if close is not None and is_async_callable(close):
            undo.clean_up(close)

    def _declare(self, hooks: HooksArgument, undo: Uninstall) -> None:
        """Register a plugin's hooks; their ids stay known until the plugin is removed."""
        declared = definitions(
            hooks, dict(self._known_hooks)
        )  # a copy, since a hook may be refused below
        new = declared.keys() - self._known_hooks.keys()
        for hook in expand(hooks, declared, origin=undo.origin):
            hook.declared = False  # as after add_hook, they run in every chat
            self.bus.enter(hook)
        self._known_hooks.update(declared)
        undo.note(lambda: [self._known_hooks.pop(id, None) for id in new])

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

    def send(
        self, conversation: Conversation | str, message: Input | Interrupt, when: When = "next"
    ) -> SentMessage:
        """Send a message into the chat that runs on this conversation, in this process.

        The same as `stream.send`, from any task of the chat's event loop. If no chat runs on the
        conversation, the message is returned at once.
        """
        running = self._conversation(conversation)
        if running is None:
            raise UsageError(f"conversation={conversation!r} must be a Conversation or its id")
        return send_to(running, message, when)

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
        options = ChatOptions(
            conversation=conversation, deps=deps, state=state, hooks=hooks, only_hooks=only_hooks
        )
        chat = self._begin(None, options)
        return await update_message(new_chat(*chat, None), message_id, changes)

    def _begin(
        self, input: Any, options: ChatOptions, answers: Mapping[str, Answer] | None = None
    ) -> tuple[Config, ChatInput]:
        if options.release not in ("live", "response"):
            raise UsageError(f"release={options.release!r} must be 'live' or 'response'")
        if options.chat_id is not None:
            check_chat_id(options.chat_id)
        model = None if options.model is None else model_of(options.model)
        config = for_chat(self._config, options, model)
        view = self._view(options.hooks, options.only_hooks)
        chat_input = ChatInput(
            chat_id=options.chat_id or config.runtime.new_id(),
            has_chat_id=options.chat_id is not None,
            view=view,
            guards=view.guards,
            only_hooks=options.only_hooks is not None,
            message=None if input is None else as_message(input),
            conversation=self._conversation(options.conversation),
            deps=options.deps,
            settings=options.settings,
            approver=self._approver if options.approver is UNSET else options.approver,
            release=options.release,
            answers=None if answers is None else dict(answers),
            state=options.state,
            own_system=options.system is not None,
            own_tools=options.tools is not None,
            options=None if config is self._config else options,  # nothing was changed
            model=model,
        )
        return config, chat_input

    def _conversation(self, conversation: Any) -> Conversation | None:
        """Return the conversation that was passed, or the stored one with the given id."""
        if isinstance(conversation, str):
            if self._store is None:
                raise UsageError(
                    f"conversation={conversation!r} is the id of a stored conversation, but the "
                    "agent has no store; pass a Conversation, or give the agent store=MemoryStore()"
                )
            return Conversation.at(self._store, conversation)
        if conversation is None or isinstance(conversation, Conversation):
            return conversation
        raise UsageError(f"conversation={conversation!r} must be a Conversation or its id")

    def _tracing(self, keys: Iterable[object] = ()) -> HookBus[Any] | None:
        """The telemetry hooks of a chat; they depend on which points have other hooks."""
        if self._telemetry is None:
            return None
        point_keys = [key for bus, _ in self._sources for key in bus.keys_in_use()]
        if self.scopes.get(HANDOFFS) is not None:  # another agent may go on with the chat
            point_keys += speakers_points(self._config)
        return self._telemetry.bus_for_chat((*point_keys, *keys))

    def _view(self, hooks: HooksArgument | None, only: HooksArgument | None) -> View:
        """The hooks that run in a chat: the agent's, and those passed to the chat."""
        if hooks is not None and only is not None:
            raise UsageError(
                "pass hooks= or only_hooks=, not both: hooks= adds hooks to the agent's hooks, and "
                "only_hooks= replaces the agent's declared hooks"
            )
        declared = hooks if only is None else only
        if declared is None:
            tracing = self._tracing()
            if tracing is None:
                return self._plain
            # Kept for the next chats, because each new view is registered at all its buses.
            if self._traced is None or self._traced[0] is not tracing:
                self._traced = tracing, View(*self._sources, (tracing, None))
            return self._traced[1]
        known_ids = definitions(
            declared, dict(self._known_hooks)
        )  # a copy: the ids count in this chat only
        own = self.bus.sibling()  # on a NullBus, the hooks of a chat do not run either
        added_hooks = expand(declared, known_ids, origin="chat")
        for hook in added_hooks:
            own.enter(hook)
        sources = self._sources if only is None else only_required(self._sources)
        view = self._view_of((*sources, (own, None)), own.keys_in_use())
        required = [hook.options for hook in added_hooks if hook.options.required]
        view.guards = tuple(dict.fromkeys(hook.id or hook.name for hook in required))
        return view

    def _view_of(self, sources: Sources, keys: Iterable[object]) -> View:
        """A view of these sources and of the telemetry hooks."""
        tracing = self._tracing(keys)
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
            history, answers = own_history(parent, run.call_id, self._config)
            chat_input = ChatInput(
                chat_id=self._config.runtime.new_id(),
                view=self._view_of(
                    for_sub_agent(parent.view, self._sources), inherited_points(parent.view)
                ),
                message=as_message(input) if answers is None else None,
                conversation=None,
                own_history=history,
                answers=answers,
                deps=parent.deps,
                approver=parent.input.approver or self._approver,
                release=parent.input.release,
                parent=parent,
                call_id=run.call_id,
            )
            response = await self._collect((self._config, chat_input))
            if history is not None and history.pending_step is not None:
                raise ChildWaits(self.name, history)
            formed = self._config.output is not None and response.stop_reason is None
            return response.output if formed else response.text

        about = description or f"Ask the agent {self.name!r}; `input` is the question or task."
        return SubAgentTool(ask, self._speaker, name or _tool_name(self.name), about, max_depth)

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
            handoff_tool(agent._speaker, _tool_name(f"transfer_to_{agent.name}"))
            for agent in agents
        ]
        return self.scopes.register(Scope(HANDOFFS, tools=tools))

    @property
    def _speaker(self) -> Speaker:
        return Speaker(self._config, self.bus, self)

    # ── a copy ──────────────────────────────────────────────────────────────────────────────

    def twin(
        self,
        *,
        model: Model | str | None = None,
        tools: Callable[[AnyTool], AnyTool] | None = None,
        hooks: HooksArgument = (),
        without: Iterable[str] = (),
        observers: bool = False,
    ) -> Agent[DepsT, OutT]:
        """Return a copy of the agent as it is now, to try out what its hooks would do.

        The copy has the name, system text, settings, limits, scopes, interceptors and wrappers of
        the agent. It has no store, approver, telemetry or subscribers. Observers, and wrappers with
        `observes=True`, are copied only with `observers=True`. The agents that its tools lead to
        are copied in the same way. `tools` is called with each tool, and returns the tool to use in
        its place, such as `tool.with_handler(…)`. `hooks` are added; hooks whose id or name is in
        `without` are left out. Later changes of the agent do not change the copy.
        """
        options = _Twin(
            model=None if model is None else model_of(model),
            tools=tools,
            without=frozenset(as_tuple("without", without)),
            observers=observers,
        )
        twin = self._twin(options)
        twin._known_hooks = definitions(hooks, dict(self._known_hooks))
        for hook in expand(hooks, twin._known_hooks, origin="agent"):
            twin.bus.enter(hook)
        return twin

    def _twin(self, options: _Twin) -> Agent[DepsT, OutT]:
        """The copy of this agent; agents that hand over to each other get one copy each."""
        copy: Agent[DepsT, OutT] | None = options.twins.get(id(self))
        if copy is not None:
            return copy
        config = self._config
        twin: Agent[DepsT, OutT] = Agent(
            options.model or config.model,
            name=self.name,
            bus=self.bus.sibling(),
            global_hooks=False,
            telemetry=None,
        )
        options.twins[id(self)] = twin
        twin._known_hooks = dict(self._known_hooks)
        for bus, keep in self._sources:
            for hook in bus.all_hooks():
                if (keep is None or keep(hook)) and options.keeps(hook):
                    twin.bus.enter(hook)
        twin._config = msgspec.structs.replace(config, model=twin._config.model, scopes=twin.scopes)
        for scope in self.scopes:
            twin.scopes.register(scope.replace(tools=[options.tool(tool) for tool in scope.tools]))
        return twin

    def __repr__(self) -> str:
        return f"<Agent {self.name!r}>"


class _Twin(msgspec.Struct, kw_only=True):
    """What a copy of an agent, and of the agents that its tools lead to, is made with."""

    model: Any
    tools: Callable[[AnyTool], AnyTool] | None
    without: frozenset[str]
    observers: bool
    twins: dict[int, Any] = msgspec.field(default_factory=dict[int, Any])

    def keeps(self, hook: Hook) -> bool:
        """Whether the copy has this hook."""
        names = {hook.name, hook.options.id} & self.without
        observes = hook.spec.kind == "observer" or hook.options.observes
        return not names and (self.observers or not observes)

    def tool(self, tool: AnyTool) -> AnyTool:
        """The tool that stands for this one."""
        if isinstance(tool, ProviderTool):
            return tool
        copy = tool if self.tools is None else self.tools(tool)
        if copy is not tool or not isinstance(tool, LeadingTool):
            return copy
        agent: Agent[Any, Any] = tool.agent._twin(self)
        if isinstance(tool, SubAgentTool):
            copy = agent.as_tool(max_depth=tool.max_depth)
        else:
            speaker = agent._speaker  # pyright: ignore[reportPrivateUsage]
            copy = handoff_tool(speaker, tool.name)
        return copy.replace(**tool.options)


def _depth(parent: Chat) -> int:
    """The number of agents from the first agent down to a sub-agent of this chat."""
    depth = 1
    while parent.input.parent is not None:
        parent, depth = parent.input.parent, depth + 1
    return depth


def _tool_name(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)[:64]
