"""`record(agent)`: record the hook points of a chat in order, as readable lines to compare."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from typing import Any, Final, Self, TypeAlias, cast, get_args

from hookline import Agent, AssistantMessage, Disposer, HookBus, Message, Subscription, ToolMessage
from hookline.errors import UsageError
from hookline.events import ChatEvent, MessageAdded
from hookline.points import TABLE, as_tuple
from hookline.testing._descriptions import context_line, error_line, event_line
from hookline.testing._events import closed_after

Recordable: TypeAlias = Agent[Any] | HookBus[Any]
"""An object whose hooks can be recorded."""

LAST: Final = -1_000_000
NOISY: Final = frozenset({"onDelta", "onHook"})
NAME: Final = "recorder"
MAX_EVENTS: Final = 1_000_000  # events between two hooks
_EVENTS: Final = get_args(ChatEvent)
Line: TypeAlias = tuple[str, tuple[str, ...]]  # its text, and the ids of the calls that it is about


class _Mark:
    """Offered to the recorder's own subscription, to read only the events before it."""


_MARK: Final = _Mark()


class Recorder:
    """A recording, made by `record`. The recording ends with its `with` block, or with `stop()`.

    `lines` has one line for each hook point that fired, and for each event if events are recorded.
    A wrapper has two lines: `aroundRequest 0 >` and `aroundRequest 0 <`, or `! ValueError: why` if
    the wrapped operation raised. Lines of a sub-agent's chat are indented.
    """

    def __init__(
        self,
        agent: Recordable,
        points: Iterable[str],
        events: Iterable[type],
        *,
        echo: Callable[[str], object] | None = None,
        **options: Any,
    ) -> None:
        self._echo = echo
        self._lines: list[Line] = []
        self._calls: dict[str, int] = {}  # the places of calls in the answers, by id
        self._points: list[str] = []
        self._depths: dict[str, int] = {}
        self._subscription: Subscription[Any] | None = None
        add = cast("Callable[..., Disposer]", agent.add_hook)
        with ExitStack() as stack:  # if one hook cannot be added, all are removed
            for point in as_tuple("points", points):
                stack.enter_context(add(point, self._hook(point), name=NAME, **options))
            self._stack = stack.pop_all()
        types = as_tuple("events", events)
        if types:
            self._subscription = agent.subscribe(*types, _Mark, size=MAX_EVENTS)

    # ── reading ─────────────────────────────────────────────────────────────────────────────

    @property
    def lines(self) -> list[str]:
        """All lines so far."""
        self._drain()
        return [text for text, _ in self._lines]

    @property
    def lines_by_call(self) -> list[str]:
        """The lines in an order that does not depend on how long calls take: for a snapshot.

        The lines of calls that run at the same time stand together for each call, in the order in
        which the model made the calls.
        """
        self._drain()
        return [text for text, _ in self._by_call(self._lines)]

    def _by_call(self, lines: Iterable[Line], depth: int = 0) -> Iterator[Line]:
        for has_call, block in groupby(lines, lambda line: len(line[1]) > depth):
            if not has_call:
                yield from block
                continue
            calls: dict[str, list[Line]] = {}
            for line in block:
                calls.setdefault(line[1][depth], []).append(line)
            for id in sorted(calls, key=lambda id: self._calls.get(id, 0)):
                yield from self._by_call(calls[id], depth + 1)

    @property
    def points(self) -> list[str]:
        """The names of the hook points that fired, in order. A wrapper counts when it begins."""
        return list(self._points)

    @property
    def text(self) -> str:
        """The lines, joined with newlines."""
        return "\n".join(self.lines)

    def clear(self) -> None:
        """Delete everything recorded so far."""
        self._drain()
        self._lines.clear()
        self._points.clear()

    # ── events ──────────────────────────────────────────────────────────────────────────────

    def note(self, event: ChatEvent) -> None:
        """Add the line of an event that was read from a stream."""
        if isinstance(event, MessageAdded):
            self._note_calls([event.message])
        self._add(event_line(event), len(event.path), (*event.path, *_calls_of(event)))

    async def read(self, stream: AsyncIterable[ChatEvent]) -> list[ChatEvent]:
        """Read a stream to its end and record each event. Raises the exceptions of the stream.

        An event is recorded when it is read; this may be later than when it was published. With
        `record(agent, events=True)`, events are recorded when they are published.
        """
        events: list[ChatEvent] = []
        async with closed_after(stream):
            async for event in stream:
                self.note(event)
                events.append(event)
        return events

    def _drain(self) -> None:
        """Record the events published so far, without waiting for more."""
        subscription = self._subscription
        if subscription is None:
            return
        subscription.offer(_MARK)
        while True:
            # An item is held, so the subscription does not wait: one step returns the value.
            step = subscription.__anext__()
            try:
                step.send(None)
            except StopIteration as held:
                if held.value is _MARK:
                    return
                self.note(held.value)

    # ── recording ───────────────────────────────────────────────────────────────────────────

    def _add(self, line: str, depth: int, calls: tuple[str, ...]) -> None:
        line = "  " * depth + line
        self._lines.append((line, calls))
        if self._echo is not None:
            self._echo(line)

    def _saw(self, point: str, ctx: Any, end: str = "") -> None:
        self._drain()
        if not end or end == " >":
            self._points.append(point)
        run = getattr(ctx, "run", None)
        self._note_calls(() if run is None else run.history)
        calls = (*getattr(run, "path", ()), *_calls_of(ctx))
        self._add(context_line(point, ctx) + end, self._depth(run), calls)

    def _note_calls(self, history: Sequence[Message]) -> None:
        """Note the order of the calls in the last answer."""
        for message in reversed(history):
            if isinstance(message, AssistantMessage):
                for call in message.tool_calls:
                    self._calls.setdefault(call.id, len(self._calls))
                return

    def _depth(self, run: Any) -> int:
        """The number of agents above a chat."""
        if run is None or run.parent_chat_id is None:
            return 0
        return self._depths.setdefault(run.chat_id, self._depths.get(run.parent_chat_id, 0) + 1)

    def _hook(self, point: str) -> Callable[..., Any]:
        def observe(ctx: Any) -> None:
            if point != "onHook" or ctx.hook != NAME:
                self._saw(point, ctx)

        async def wrap(ctx: Any, proceed: Callable[[], Any]) -> Any:
            self._saw(point, ctx, " >")
            try:
                result = await proceed()
            except BaseException as exc:
                self._saw(point, ctx, f" ! {error_line(exc)}")
                raise
            self._saw(point, ctx, " <")
            return result

        wrapper = point in TABLE and TABLE[point].kind == "wrapper"
        return wrap if wrapper else observe

    def stop(self) -> None:
        """Stop recording, but keep the recorded lines. Further calls do nothing."""
        self._stack.close()
        self._drain()
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Recorder of {len(self._lines)} lines>"


def _calls_of(subject: Any) -> tuple[str, ...]:
    """The id of the call that a hook point or an event is about, if it is about one."""
    message: Message | None = getattr(subject, "message", None)
    call = getattr(getattr(subject, "request", subject), "call", None)
    ids = (
        message.call_id if isinstance(message, ToolMessage) else None,
        getattr(subject, "call_id", None),
        getattr(call, "id", None),
    )
    return next(((id,) for id in ids if id), ())


def record(
    agent: Recordable,
    *,
    points: Iterable[str] | None = None,
    events: bool | Iterable[type[ChatEvent]] = False,
    priority: int = LAST,
    inherit: bool = False,
    echo: Callable[[str], object] | None = None,
) -> Recorder:
    """Record the hook points of an agent's chats, after all other hooks.

    The recorder changes nothing. `points` are the points to record; by default, these are all
    points except onDelta and onHook, which fire very often. `events=True` also records published
    events, in order with the hooks; a list of event types records only events of these types. With
    `inherit`, sub-agents are recorded too. `echo`, such as `print`, is called with each line. If a
    hook ends a chain, later hooks and the recorder do not run. To record the point in this case
    too, pass a high `priority=`. Raises UnknownHookError for an unknown point, and UsageError
    if `points` or `events` is not a list.
    """
    if isinstance(points, str):
        raise UsageError(f"points={points!r} must be a list; write points=[{points!r}]")
    if isinstance(events, type):
        name = events.__name__
        raise UsageError(f"events={name} must be a list or a bool; write events=[{name}]")
    names = [name for name in TABLE if name not in NOISY] if points is None else points
    published = () if events is False else _EVENTS if events is True else events
    return Recorder(agent, names, published, echo=echo, priority=priority, inherit=inherit)
