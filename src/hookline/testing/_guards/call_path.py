"""One path of a probe: copies of the agent, whose tools only note the call, and what became of it.

The copy has the hooks of the agent on a bus of its own, so that nothing of the agent is changed.
On some paths its guards let everything pass at first, as if access was withdrawn later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any, Final, Literal, TypeAlias, cast

from hookline import Agent, Approve, Ask, Deny, HookBus, HookDef, Scope, Tool, ToolCall, define_hook
from hookline.errors import HooklineError
from hookline.models import ProviderTool
from hookline.points import OnHook, PreToolCall
from hookline.testing._script import ScriptedModel
from hookline.testing._turn import call as call_of

Passage: TypeAlias = Literal["denied", "asked", "ran", "changed", "not run"]
"""The end of a path: the call was refused, asked about, run, run with other arguments only, or not
run for another reason, such as an answer in place of the tool."""
OURS: Final = "hookline probe"  # the name of the hooks on the paths
SUB_AGENT: Final = "hookline_probe_sub_agent"
NEXT: Final = "hookline_probe_next"  # the agent after a handoff
OUR_TOOLS: Final = (SUB_AGENT, f"transfer_to_{NEXT}")
LAST: Final = -1_000_000_000
REFUSALS: Final = ("blocked", "stopped", "asked", "raised")
last_hook: Final[Callable[..., HookDef]] = partial(
    cast("Any", define_hook), name=OURS, priority=LAST
)
"""`define_hook` for a hook of a path, which runs after all others."""


class LeftOutError(Exception):
    """Raised by a path that does not exist for this agent; its text is the reason."""


class CallPath:
    """One run of copies of the agent with a call that must not run.

    Start the copy of `guarded()` with your own code, and let the model of the copy make the call.
    The tools of a copy only note the call.
    """

    def __init__(
        self, agent: Agent[Any], call: ToolCall, deps: Any = None, secret: str | None = None
    ) -> None:
        self.agent = agent
        """The agent whose guards are proved."""
        self.call = call
        """The call that must not run."""
        self.deps = deps
        """The deps of each chat."""
        self.secret = secret
        """The text that must not reach the tool; None: the tool must not get the whole call."""
        self.is_approved = False
        """Whether a person or a hook allows the call, so that only a refusal holds it back."""
        self.guards: set[str] = set()
        """The names of the hooks that were asked about a call."""
        self.refusers: set[str] = set()
        """The names of the hooks that refused it, or asked."""
        self.broken: set[str] = set()
        """The names of the hooks that raised an exception."""
        self.has_asked = False
        """Whether a person was asked about the call."""
        self.has_refused = False
        """Whether the call was refused."""
        self.ran = False
        """Whether the call ran, or got as far as only a call that may run does."""
        self.runs = 0
        """How often the call ran."""
        self.other: dict[str, Any] | None = None
        """The other arguments with which the tool ran last."""
        self.on_run: Callable[[], Awaitable[None]] | None = None
        """Called when the call runs."""
        self.direct: frozenset[str] = frozenset()
        """The names of the hooks that refused the call in a plain chat."""
        self.leads: dict[str, str | None] = {}
        """The tools that lead to the agent of the call, which people approve; how each leads."""
        self.withdrawn = True
        """False: the guards let every call pass, as if access was withdrawn later."""

    # ── copies ──────────────────────────────────────────────────────────────────────────────

    def guarded(self, *turns: Any, later: bool = False, **options: Any) -> Agent[Any]:
        """A copy of the agent with its hooks; `later`: its guards obey `withdrawn`."""
        bus = self.agent.bus.sibling()
        for hook in self.agent.bus.all_hooks():
            mine = copy(hook)
            if hook.spec.name == "preToolCall" or (later and hook.spec.name == "preRequest"):
                mine.fn = self._gated(hook, later=later)
            bus.enter(mine)
        return self._copy(bus, turns, options)

    def bare(self, *turns: Any, **options: Any) -> Agent[Any]:
        """A copy of the agent without its hooks; global hooks stay."""
        return self._copy(HookBus(), turns, options)

    def _gated(self, hook: Any, *, later: bool) -> Any:
        """The hook's function; it is not called for a tool of a path, which it does not know."""

        def is_open(ctx: Any) -> bool:
            ours = isinstance(ctx, PreToolCall) and ctx.call.name in OUR_TOOLS
            return ours or (later and not self.withdrawn)

        async def decide_later(ctx: Any) -> Any:
            return None if is_open(ctx) else await hook.fn(ctx)

        def decide(ctx: Any) -> Any:
            return None if is_open(ctx) else hook.fn(ctx)

        return decide_later if hook.is_async else decide

    def _copy(
        self, bus: HookBus[Any], turns: tuple[Any, ...], options: dict[str, Any]
    ) -> Agent[Any]:
        bus.add_hook("onHook", self.watch, inherit=True, name=OURS)
        opted_out = any(hook.off == "global_hooks=False" for hook in self.agent.hooks())
        if "tools" not in options:
            options.setdefault("scopes", self.scopes())
        model = options.pop("model", None)
        return Agent(
            model or ScriptedModel(*(turns or (self.turn(),)), "done", repeat=True),
            name=options.pop("name", self.agent.name),
            bus=bus,
            global_hooks=not opted_out,
            telemetry=None,
            **options,
        )

    def scopes(self, **changes: Any) -> list[Scope]:
        """The scopes of the agent with tools that only note the call."""
        scopes: dict[int, Scope] = {}
        tools: dict[int, list[Any]] = {}
        for tool, scope in self.agent.scopes.tools.values():
            scopes[id(scope)] = scope
            tools.setdefault(id(scope), []).append(self.tool(tool, **changes))
        return [Scope(scopes[key].label, tools=tools[key]) for key in scopes]

    def tool(self, tool: Any, **changes: Any) -> Any:
        """A tool with the same name, description and parameters that notes the call."""
        if isinstance(tool, ProviderTool):
            return tool

        async def note(arguments: dict[str, Any]) -> str:
            if self.is_meant(tool.name, arguments):
                self.ran = True
                self.runs += 1
                if self.on_run is not None:
                    await self.on_run()
            elif tool.name == self.call.name and arguments != self.harmless.arguments:
                self.other = arguments
            return "noted"

        options: dict[str, Any] = {"validate": False, "idempotent": True, **changes}
        fn = None if options.get("client") else note
        if fn is None:
            del options["idempotent"]
        return Tool.from_schema(tool.name, tool.description, tool.parameters, fn, **options)

    # ── what becomes of the call ────────────────────────────────────────────────────────────

    def is_meant(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether this is the call that must not run."""
        if name != self.call.name:
            return False
        if self.secret is not None:
            return contains(arguments, self.secret)
        return arguments == self.call.arguments

    def watch(self, ctx: OnHook[Any]) -> None:
        """Note what a hook says about the call; an observer at `onHook`."""
        if ctx.point == "preToolCall" and ctx.hook != OURS:
            self.guards.add(ctx.hook)
            leads = ctx.outcome == "asked" and ctx.context.call.name in self.leads
            if ctx.outcome in REFUSALS and not leads:
                self.has_refused = True
                self.refusers.add(ctx.hook)
            if ctx.outcome == "raised":
                self.broken.add(ctx.hook)

    @contextmanager
    def refusing(self, *errors: type[HooklineError]) -> Generator[None]:
        """Take these errors as a refusal."""
        try:
            yield
        except errors:
            self.has_refused = True

    def count(self) -> None:
        """Note that the call ran more often than a person allowed: once, if a guard asked."""
        self.ran = self.runs > (1 if self.refusers else 0)

    def must_differ(self) -> None:
        """Raise LeftOutError if the harmless call is the call itself."""
        if self.harmless.arguments == self.call.arguments:
            raise LeftOutError("the call has no arguments that could be changed")

    def must_inherit(self) -> None:
        """Raise LeftOutError if all hooks that refuse the call have `inherit=False`."""
        hooks = self.agent.bus.standing("preToolCall")
        options = [hook.options.inherit for hook in hooks if hook.name in self.direct]
        if options and all(inherit is False for inherit in options):
            raise LeftOutError("the guards have inherit=False")

    @property
    def passage(self) -> Passage:
        """The end of the path."""
        if self.ran:
            return "ran"
        if self.has_asked:
            return "asked"
        if self.has_refused and (self.secret is None or self.other is None):
            return "denied"
        return "not run" if self.other is None else "changed"

    # ── the parts of a path ─────────────────────────────────────────────────────────────────

    def turn(self, call: ToolCall | None = None) -> Any:
        """The answer of a model that makes this call; by default the call that must not run."""
        call = self.call if call is None else call
        return call_of(call.name, dict(call.arguments))

    @property
    def harmless(self) -> ToolCall:
        """A call of the same tool with empty arguments, which is changed on the way."""
        empty = {name: _empty(value) for name, value in self.call.arguments.items()}
        return self.call.replace(arguments=empty)

    @property
    def edited(self) -> Approve:
        """An approval that changes the harmless call."""
        return Approve(arguments=dict(self.call.arguments))

    def question(self, *, expires: float | None = None, required: bool = False) -> HookDef:
        """A hook that asks about every call, as the last one."""

        def ask(ctx: PreToolCall[Any]) -> Ask:
            return Ask("only a probe", expires=expires)

        return last_hook("preToolCall", ask, required=required)

    async def deny(self, request: Any, run: Any) -> Deny | Approve:
        """The approver of a path: nobody approves the call, except without its secret."""
        arguments = request.call.arguments
        if request.call.name in self.leads:
            return Approve()
        is_meant = self.is_meant(request.call.name, arguments)
        self.has_asked = self.has_asked or is_meant
        is_clean = self.secret is not None and arguments != self.harmless.arguments
        return Approve() if is_clean and not is_meant else Deny("only a probe")

    async def approve(self, request: Any, run: Any) -> Approve:
        """An approver that approves the call as it stands."""
        return Approve()

    async def edit(self, request: Any, run: Any) -> Approve:
        """An approver that changes the harmless call."""
        return self.edited

    async def chat(self, agent: Agent[Any], *hooks: Any, **options: Any) -> Any:
        """A chat of this agent."""
        options = {"approver": self.deny, "deps": self.deps, **options}
        if hooks:
            options["hooks"] = [*hooks]
        return await agent.chat("probe", **options)

    async def resume(
        self, agent: Agent[Any], talk: Any, answers: dict[str, Any], **options: Any
    ) -> None:
        """Resume a chat of this agent, unless the call was refused and no question waits."""
        if answers:
            await agent.resume(talk, answers, deps=self.deps, **options)


Walk: TypeAlias = Callable[[CallPath], Awaitable[Any]]
"""A function that sends the call of a path over it; it may raise LeftOutError."""


def changing(arguments: Mapping[str, Any]) -> HookDef:
    """A wrapper that changes the arguments of every call."""

    async def change(ctx: Any, proceed: Any) -> Any:
        return await proceed(ctx.call.replace(arguments=arguments))

    return last_hook("aroundToolCall", change)


def withdrawing(path: CallPath) -> Callable[[Any, Any], Awaitable[Approve]]:
    """An approver that approves the call, while access to it is withdrawn."""

    async def approve(request: Any, run: Any) -> Approve:
        path.withdrawn = True
        return Approve()

    return approve


def contains(value: object, text: str) -> bool:
    """Return whether JSON data contains a text, also in its keys."""
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value)
        return any(text in key or contains(item, text) for key, item in items.items())
    if isinstance(value, (list, tuple)):
        return any(contains(item, text) for item in cast("Sequence[object]", value))
    return text in str(value)


def _empty(value: object) -> Any:
    if isinstance(value, (list, dict)):
        return [] if isinstance(value, list) else {}
    return None if value is None else type(value)()
