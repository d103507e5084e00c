"""`watch_prefix`: say how much of each request a prompt cache can reuse, and which hook moved it.

Theory of operation. A request passes stages: as the engine built it, after each hook at
`preRequest`, and after each wrapper at `aroundRequest`. Each stage has a meter, which compares its
request with that of the same stage in the step before. A hook that always changes the same place
in the same way is therefore not blamed. The hook that moved the prefix is the first stage from
which on each stage loses at least half as much as the request that was sent. `onHook` shows the
stages. They are compared when the model has answered, because the answer says what the provider
read from its cache.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

import msgspec

from hookline import ChatRequest, ModelRequest, ModelResponse, Run, Usage
from hookline.hooks._common import CallModel, Hooks, PerChat, definer
from hookline.models import Prefix, PrefixMeter
from hookline.points import AroundRequest, OnHook, check_number

NAME: Final = "watch_prefix"
OUTERMOST: Final = 10_000_000
CONVERSATIONS: Final = 1000
"""The number of conversations whose last request is remembered."""
WINDOW: Final = 5
"""A hook that moves the prefix twice within this number of requests is logged."""
_logger = logging.getLogger("hookline.hooks")


class RequestPrefix(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a chat, compared with the request before it."""

    run: Run[Any]
    """The chat."""
    iteration: int
    """The step, counted from 0."""
    prefix: Prefix
    """What the request has in common with the request before."""
    hook: str | None
    """The hook that moved the prefix; None if no hook did."""
    usage: Usage | None
    """The tokens of the request, as the provider counts them."""


Report = Callable[[RequestPrefix], object]
"""A function that gets each request's figure."""


class _Stage(NamedTuple):
    """A hook and the request that it passed on."""

    key: tuple[str, str, int]  # its point, its name, and the number among hooks of that name
    request: ModelRequest


class _Step:
    """What is known about the requests of the chat's current step."""

    def __init__(self) -> None:
        self.iteration = -1
        self.base: ModelRequest | None = None
        self.stages: list[_Stage] = []
        self.wrappers: list[_Stage] = []  # the innermost first, as they end
        self.request: ModelRequest | None = None
        self.before_chat: dict[str, str] = {}  # what a hook changed at preChat, and its name

    def begin(self, iteration: int) -> None:
        if iteration != self.iteration:
            self.iteration, self.base, self.request = iteration, None, None
            self.stages, self.wrappers = [], []


class _Conversation:
    """The meters of a conversation and an agent, by stage."""

    def __init__(self) -> None:
        self.meter = PrefixMeter()
        self.meters: dict[Any, PrefixMeter] = {}
        self.before_chat: dict[str, str] = {}  # the names of hooks at preChat, in the last chat
        self.requests = 0
        self.moves: dict[str, int] = {}  # for each hook, the request whose prefix it moved


class _Watcher:
    def __init__(self, tokens: int, report: Report | None) -> None:
        self._tokens = tokens
        self._report = report
        self._conversations: OrderedDict[tuple[str, str], _Conversation] = OrderedDict()
        self._logged_hooks: set[str] = set()
        self.steps = PerChat[_Step](lambda run: _Step())

    # ── the stages ──────────────────────────────────────────────────────────────────────────

    def on_hook(self, ctx: OnHook[Any]) -> None:
        if ctx.run is None or ctx.hook == NAME:
            return
        if ctx.point == "preRequest":
            step = self.steps.of(ctx.run)
            step.begin(ctx.context.iteration)
            if step.base is None:
                step.base = ctx.context.request
            request = ctx.context.request
            if isinstance(ctx.returned, ModelRequest):
                request = ctx.returned
            step.stages.append(_Stage(_key(step.stages, ctx), request))
        elif ctx.point == "aroundRequest":
            step = self.steps.of(ctx.run)
            request = cast("ModelRequest", ctx.passed or ctx.context.request)
            step.wrappers.append(_Stage(_key(step.wrappers, ctx), request))
        elif ctx.point == "preChat":
            before, after = ctx.context.request, ctx.returned
            if isinstance(after, ChatRequest):
                names = self.steps.of(ctx.run).before_chat
                for field in ("system", "tools"):
                    if getattr(before, field) != getattr(after, field):
                        names[field] = ctx.hook

    async def around(self, ctx: AroundRequest[Any], proceed: CallModel) -> ModelResponse:
        """Wrap all other wrappers: compare the stages when all have ended."""
        step = self.steps.of(ctx.run)
        step.begin(ctx.iteration)
        response = await proceed()
        if step.request is not None:
            await self._compare(ctx, step, step.request, response.usage)
        return response

    async def send(self, ctx: AroundRequest[Any], proceed: CallModel) -> ModelResponse:
        """Note the request as it is sent, inside all other wrappers."""
        self.steps.of(ctx.run).request = ctx.request
        return await proceed()

    # ── the comparison ──────────────────────────────────────────────────────────────────────

    async def _compare(
        self, ctx: AroundRequest[Any], step: _Step, request: ModelRequest, usage: Usage | None
    ) -> None:
        conversation = self._of(ctx.run)
        conversation.requests += 1
        prefix = conversation.meter.measure(request)
        stages = [
            _Stage(("", "", 0), step.base or ctx.request),
            *step.stages,
            *reversed(step.wrappers),
        ]
        reused = _measure(conversation, stages)
        if prefix is None:
            return
        hook = None
        has_moved = prefix.lost >= self._tokens
        if has_moved:
            hook = _culprit(stages, reused, prefix.reused)
            if hook is None and prefix.differs is not None:
                names = {**conversation.before_chat, **step.before_chat}
                hook = names.get(prefix.differs)
        figure = RequestPrefix(
            run=ctx.run, iteration=ctx.iteration, prefix=prefix, hook=hook, usage=usage
        )
        if has_moved:
            await self._report_move(conversation, figure)
        conversation.before_chat = step.before_chat
        if self._report is not None:
            self._report(figure)

    def _of(self, run: Run[Any]) -> _Conversation:
        key = (run.conversation_id or run.chat_id, run.agent)
        conversation = self._conversations.setdefault(key, _Conversation())
        self._conversations.move_to_end(key)
        if len(self._conversations) > CONVERSATIONS:
            self._conversations.popitem(last=False)
        return conversation

    async def _report_move(self, conversation: _Conversation, figure: RequestPrefix) -> None:
        """Report the move; log a hook that does it again soon, once."""
        run, hook, prefix, usage = figure.run, figure.hook, figure.prefix, figure.usage
        name, number = hook or "", conversation.requests
        data = {"hook": hook, "share": round(prefix.share, 3), "lost": prefix.lost}
        await run.status("prefix-moved", {**data, "differs": prefix.differs})
        is_repeat = number - conversation.moves.get(name, number - WINDOW) < WINDOW
        conversation.moves[name] = number
        if not is_repeat or name in self._logged_hooks:
            return
        self._logged_hooks.add(name)
        who = f"hook {hook!r}" if hook else f"no hook, but the history of agent {run.agent!r}"
        cached = (
            "the provider reports no tokens"
            if usage is None
            else f"the provider read {usage.cache_read_tokens:,} of {usage.input_tokens:,} input "
            "tokens from its cache"
        )
        _logger.warning(
            "%s moves the start of requests, so that a prompt cache cannot reuse it: %.0f%% of the "
            "request equals the one before, the first difference is %s, about %s tokens are sent "
            "again; %s. Change only the end of requests, or change their start rarely",
            who,
            100 * prefix.share,
            prefix.differs,
            f"{prefix.lost:,}",
            cached,
        )


def _key(stages: list[_Stage], ctx: OnHook[Any]) -> tuple[str, str, int]:
    return ctx.point, ctx.hook, sum(stage.key[1] == ctx.hook for stage in stages)


def _measure(conversation: _Conversation, stages: list[_Stage]) -> list[float]:
    """How much of its request before each stage reuses."""
    meters: dict[Any, PrefixMeter] = {}
    reused: list[float] = []
    before = PrefixMeter()  # of the stage before, with its earlier request: for a new stage
    for stage in stages:
        meter = conversation.meters.get(stage.key) or before
        before, meters[stage.key] = meter, meter.copy()
        prefix = meters[stage.key].measure(stage.request)
        reused.append(1.0 if prefix is None else prefix.reused)
    conversation.meters = meters
    return reused


def _culprit(stages: list[_Stage], reused: list[float], at_end: float) -> str | None:
    """The hook that moved the prefix for good: from there on, each stage loses at least half as
    much as the request that was sent. None if that is so from the start."""
    first = len(stages)
    while first and 1 - reused[first - 1] >= (1 - at_end) / 2:
        first -= 1
    return stages[first].key[1] if 0 < first < len(stages) else None


def watch_prefix(
    report: Report | None = None,
    *,
    tokens: int = 1000,
    inherit: bool = True,
    required: bool = False,
) -> Hooks:
    """Watch how much of each request equals the start of the request before it.

    Providers cache the start of requests. If a request of the same conversation and agent cannot
    reuse `tokens` or more of the request before, the status `prefix-moved` names the hook that
    moved the prefix. A hook that does so twice in five requests is logged once, with what the
    provider says it read from its cache. `report` gets the figure of each request but the first.
    """
    check_number("tokens", tokens, whole=True)
    watcher = _Watcher(tokens, report)

    add = definer(name=NAME, inherit=inherit, required=required)
    return (
        add("onHook", watcher.on_hook),
        add("aroundRequest", watcher.around, priority=OUTERMOST, on_error="log"),
        add("aroundRequest", watcher.send, priority=-OUTERMOST, on_error="log"),
        watcher.steps.forget(add),
    )
