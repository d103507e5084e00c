"""`Agent`: configuration, hooks and scopes. It holds no conversation and no state of any chat.

What a chat needs is put together here and handed to the loop. Its constructor and `chat` take more
than six parameters: they are the face, and all but the first are options by name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from math import inf
from time import perf_counter
from types import NoneType
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar, Unpack, cast, overload

from hookline._bus import HookBus, View, watcher
from hookline._chain import ALONE, Alone, call, fault
from hookline._chat import (
    DEFAULT_LIMITS,
    Approver,
    Chat,
    Config,
    Limits,
    Release,
    SystemText,
    Task,
    cleaned,
    new_chat,
)
from hookline._conversation import Conversation, Store
from hookline._errors import UsageError
from hookline._events import ChatEvent
from hookline._json import clean_text
from hookline._log import log_throw
from hookline._messages import File, Image, Text, UserMessage, UserPart
from hookline._model import DEFAULT_SETTINGS, Model, Settings
from hookline._outcomes import Decision, Response
from hookline._outlet import Buffer
from hookline._owner import Owner
from hookline._points import HookOutcome, OnScopeRegister, OnScopeUnregister
from hookline._registration import Hook, HookDef, HookInfo, HooksArgument, expand
from hookline._run import DepsT, Run
from hookline._runtime import LOCAL, Runtime
from hookline._scopes import Scope, Scopes
from hookline._stream import ChatStream
from hookline._subscribe import Overflow, Subscription
from hookline._tools import AnyTool, Tool, ToolLike
from hookline._typed import AddHook, HookDecorator

E = TypeVar("E")
Input: TypeAlias = str | UserMessage | Sequence[UserPart]


class ChatOptions(TypedDict, Generic[DepsT], total=False):
    """What `chat`, `chat_stream` and their resuming forms take by name."""

    deps: DepsT
    hooks: HooksArgument
    settings: Settings
    approver: Approver
    release: Release
    state: dict[str, Any]


class NewChatOptions(ChatOptions[DepsT], Generic[DepsT], total=False):
    """What a new chat takes besides."""

    conversation: Conversation | str


class Agent(Generic[DepsT]):
    """An agent: a model, its tools, and the hooks around everything that happens.

    `Agent[Deps](...)` types the `deps=` of its chats and what hooks and tools see of them. Hooks
    given as `hooks=` count as registered here; a chat's own `hooks=` replaces them for that chat.
    """

    def __init__(
        self,
        model: Model,
        *,
        name: str = "agent",
        system: SystemText = None,
        tools: Iterable[ToolLike] = (),
        scopes: Iterable[Scope] = (),
        hooks: HooksArgument = (),
        known_hooks: Iterable[HookDef] = (),
        settings: Settings = DEFAULT_SETTINGS,
        limits: Limits = DEFAULT_LIMITS,
        max_steps: int = 20,
        max_continuations: int = 3,
        parallel_tools: bool = True,
        approver: Approver | None = None,
        store: Store | None = None,
        bus: HookBus[DepsT] | None = None,
        runtime: Runtime = LOCAL,
    ) -> None:
        if not isinstance(model, Model):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(
                f"model={model!r} is no Model: it needs a method stream(request) that gives an "
                "async iterator of chunks"
            )
        if max_steps < 1:
            raise UsageError(f"max_steps={max_steps!r} must be at least 1")
        self.name = name
        self.bus: HookBus[DepsT] = bus if bus is not None else HookBus()
        self.scopes = Scopes(self._scope_hooks)
        self._approver = approver
        self._store = store
        self._config = Config(
            name=name,
            model=model,
            bus=self.bus,
            scopes=self.scopes,
            system=system,
            settings=settings,
            limits=limits,
            max_steps=max_steps,
            max_continuations=max_continuations,
            parallel_tools=parallel_tools,
            runtime=runtime,
        )
        self._known = {each.id: each for each in known_hooks if each.id is not None}
        self._known.update(_definitions(hooks))
        for hook in expand(hooks, self._known, origin="agent"):
            self.bus.enter(hook)
        own = list(tools)
        if own:
            self.scopes.register(Scope("agent", tools=own))
        for scope in scopes:
            self.scopes.register(scope)

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
        """All registrations in firing order, of one point or of all."""
        return self.bus.hooks(point)

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
        return self.bus.subscribe(*types, size=size, overflow=overflow)

    def _scope_hooks(self, point: str, scope: Scope) -> list[Callable[[], Awaitable[None]]]:
        """Tell the scope observers: sync ones now, async ones before the next chat or step."""
        ctx: Any = OnScopeRegister(scope=scope)
        if point == "onScopeUnregister":
            ctx = OnScopeUnregister(scope=scope)
        view = self.bus.view
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
                late.append(partial(_observe, view, hook, ctx, value))
            elif view.onHook:
                spent = perf_counter() - start
                late.append(partial(watcher(view, None), hook, outcome, spent))
        return late

    # ── chats ───────────────────────────────────────────────────────────────────────────────

    async def chat(self, input: Input, **options: Unpack[NewChatOptions[DepsT]]) -> Response:
        """Run one chat and give its response: `chat_stream`, collected.

        Raises what ended it: a hook's, tool wrapper's or model's own exception, MaxStepsError,
        ChatAbortedError; ConversationBusyError before anything has happened.
        """
        return await self._collect(self._task(input, options))

    def chat_stream(self, input: Input, **options: Unpack[NewChatOptions[DepsT]]) -> ChatStream:
        """The events of one chat as they happen. Nothing runs before it is entered or read."""
        return self._stream(self._task(input, options))

    async def resume(
        self,
        conversation: Conversation | str,
        answers: Mapping[str, Decision],
        **options: Unpack[ChatOptions[DepsT]],
    ) -> Response:
        """Go on with calls that waited: `{approval_id: Approve() | Deny("why")}`.

        Raises ApprovalError, with nothing run, when an answer fits nothing that waits.
        """
        return await self._collect(
            self._task(None, {**options, "conversation": conversation}, answers)
        )

    def resume_stream(
        self,
        conversation: Conversation | str,
        answers: Mapping[str, Decision],
        **options: Unpack[ChatOptions[DepsT]],
    ) -> ChatStream:
        """`resume`, as a stream."""
        return self._stream(self._task(None, {**options, "conversation": conversation}, answers))

    def _task(
        self, input: Any, options: Any, answers: Mapping[str, Decision] | None = None
    ) -> Task:
        if not options.keys() <= _OPTIONS:
            unknown = ", ".join(sorted(options.keys() - _OPTIONS))
            raise TypeError(f"there is no option {unknown}; there are {', '.join(_OPTIONS)}")
        conversation = options.get("conversation")
        if isinstance(conversation, str) and self._store is None:
            raise UsageError(
                f"conversation={conversation!r} names a stored conversation and the agent has no "
                "store: pass a Conversation, or give the agent store=MemoryStore()"
            )
        if not isinstance(conversation, (Conversation, str, NoneType)):
            raise UsageError(f"conversation={conversation!r} must be a Conversation or its id")
        release = options.get("release", "live")
        if release not in ("live", "response"):
            raise UsageError(f"release={release!r} must be 'live' or 'response'")
        return Task(
            chat_id=self._config.runtime.new_id(),
            view=self._view(options.get("hooks")),
            message=None if answers is not None else as_message(input),
            conversation=conversation,
            store=self._store,
            deps=options.get("deps"),
            settings=options.get("settings"),
            approver=options.get("approver", self._approver),
            release=release,
            answers=None if answers is None else dict(answers),
            state=options.get("state"),
        )

    def _view(self, hooks: HooksArgument | None) -> View:
        if hooks is None:
            return self.bus.view
        known = {**self._known, **_definitions(hooks)}
        own = self.bus.sibling()
        stays = {hook.definition for hook in self.bus.all_hooks() if hook.required}
        for hook in expand(hooks, known, origin="chat"):
            if hook.definition is None or hook.definition not in stays:
                own.enter(hook)
        return View((self.bus, _stays), (own, None))

    def _stream(self, task: Task) -> ChatStream:
        return ChatStream(partial(_owner, self._config, task), task.chat_id)

    async def _collect(self, task: Task) -> Response:
        owner = _owner(self._config, task, None)
        owner.start()
        return await owner.collect()

    # ── as a tool of another agent ──────────────────────────────────────────────────────────

    def as_tool(self, *, name: str | None = None, description: str | None = None) -> AnyTool:
        """This agent as a tool: its own chat, with no conversation, for each call.

        Deps and approver are passed on; of the parent's hooks those with `inherit=True` follow.
        """

        async def ask(input: str, run: Run[Any]) -> str:
            parent = Run.chat_of(run)
            assert isinstance(parent, Chat)
            task = Task(
                chat_id=self._config.runtime.new_id(),
                view=_inherited(parent.view, self.bus),
                message=as_message(input),
                conversation=None,
                deps=parent.deps,
                approver=parent.task.approver or self._approver,
                release=parent.task.release,
                parent=parent,
                call_id=run.call_id,
            )
            return (await self._collect(task)).text

        about = description or f"Ask the agent {self.name!r}; `input` is what to ask."
        return Tool(ask, name=name or _tool_name(self.name), description=about, timeout=inf)

    def __repr__(self) -> str:
        return f"<Agent {self.name!r}>"


_OPTIONS = {"conversation", "deps", "hooks", "settings", "approver", "release", "state"}


def as_message(input: Any) -> UserMessage:
    """What the user said, as a message without lone surrogates."""
    if isinstance(input, UserMessage):
        return cleaned(input)
    if isinstance(input, str):
        return UserMessage(parts=(Text(clean_text(input)),))
    parts: tuple[Any, ...] = ()
    if isinstance(input, (list, tuple)):
        parts = tuple(cast("Sequence[Any]", input))
    if not parts or not all(isinstance(part, (Text, Image, File)) for part in parts):
        raise UsageError(
            f"{input!r} is nothing a user can say: pass a str, a UserMessage, or a list of "
            "Text, Image and File parts"
        )
    return cleaned(UserMessage(parts=parts))


def _owner(config: Config, task: Task, buffer: Buffer | None) -> Owner:
    return Owner(new_chat(config, task, buffer), buffer)


def _stays(hook: Hook) -> bool:
    """Whether a hook of the agent also runs in a chat that brings its own."""
    return hook.origin != "agent" or hook.required


def _inherits(hook: Hook) -> bool:
    return hook.inherit


def _inherited(parent: View, bus: HookBus[Any]) -> View:
    """A sub-agent's hooks: the parent's that are inherited, then its own."""
    sources = [(source, _both(keep)) for source, keep in parent.sources]
    return View(*sources, (bus, None))


def _both(keep: Callable[[Hook], bool] | None) -> Callable[[Hook], bool]:
    if keep is None:
        return _inherits
    return lambda hook: hook.inherit and keep(hook)


def _definitions(hooks: HooksArgument) -> dict[str, HookDef]:
    found: dict[str, HookDef] = {}
    if isinstance(hooks, Mapping):
        return found
    for each in hooks:
        if isinstance(each, HookDef):
            if each.id is not None:
                found[each.id] = each
        elif not isinstance(each, str):
            found.update(_definitions(each))
    return found


def _tool_name(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)[:64]


async def _observe(view: View, hook: Hook, ctx: Any, begun: Awaitable[Any] | None) -> None:
    """Tell an async scope observer; `begun` is what a sync one has returned to be awaited."""
    conduct = Alone(watcher(view, None)) if view.onHook else ALONE
    try:
        if begun is not None:
            await begun
        elif hook.alive:
            await call(hook, ctx, conduct)
    except BaseException as exc:
        log_throw(f"hook {hook.name!r} at {hook.head.name} raised", fault(hook, exc))
