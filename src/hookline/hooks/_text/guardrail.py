"""`guardrail`: check the user's input in parallel with the model, or check the model's answers.

Until a check of the input has passed, no answer is stored and no tool starts, however fast the
model is. If the check trips, the model call is cancelled, text that was already shown is retracted,
and the chat stops. A check that fails or exceeds its time limit counts as tripped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Literal, NamedTuple, overload

from hookline import (
    AssistantMessage,
    Deny,
    Message,
    ModelRequest,
    ModelResponse,
    Run,
    Stop,
    UserMessage,
)
from hookline.errors import StopChat, UsageError
from hookline.hooks._common import GUARD, LAST, Add, CallModel, Hooks, PerChat, definer
from hookline.hooks._text.guardrail_checks import Finding, judged
from hookline.points import (
    AroundRequest,
    Guide,
    OnResponse,
    PreChat,
    PreMessage,
    PreRequest,
    PreSteer,
)

REASON: Final = "guardrail"
KEY: Final = "hookline.guardrail"  # the messages that were stopped
UNCHECKED: Final = "hookline.guardrail.missed"  # the messages that are still to be checked
StopText = str | None
"""The text of a check that trips; None if the check passes."""
InputCheck = Callable[[UserMessage, Run[Any]], StopText | Awaitable[StopText]]
"""A check of the user's message."""
OutputCheck = Callable[[ModelResponse, Run[Any]], StopText | Awaitable[StopText]]
"""A check of the model's answer."""


@overload
def guardrail(
    check: InputCheck,
    *,
    on: Literal["input"] = "input",
    parallel: bool = True,
    timeout: float = 10.0,
    text: str = ...,
    name: str = "guardrail",
    inherit: bool = True,
    required: bool = True,
) -> Hooks: ...
@overload
def guardrail(
    check: OutputCheck,
    *,
    on: Literal["output"],
    on_fail: Literal["stop", "guide"] = "stop",
    live: bool = False,
    timeout: float = 10.0,
    text: str = ...,
    name: str = "guardrail",
    inherit: bool = True,
    required: bool = True,
) -> Hooks: ...
def guardrail(
    check: Callable[..., StopText | Awaitable[StopText]],
    *,
    on: Literal["input", "output"] = "input",
    on_fail: Literal["stop", "guide"] = "stop",
    parallel: bool = True,
    live: bool = False,
    timeout: float = 10.0,
    text: str = "A guardrail has stopped this.",
    name: str = "guardrail",
    inherit: bool = True,
    required: bool = True,
) -> Hooks:
    """Stop the chat if `check` returns a text; the text is sent to the user.

    If `check` returns None, the chat continues. With `on="input"`, the check gets the user's
    message and runs in parallel with the model. With `parallel=False`, the check runs before
    anything is stored. With `on="output"`, the check gets each answer that has text. The answer is
    shown only after the check has passed; with `live=True`, the answer is shown as it arrives. With
    `on_fail="guide"`, the answer is withdrawn, and the model gets the text and answers again. The
    chat also stops if the check raises an exception, returns another type, or takes longer than
    `timeout` seconds. Then the user gets `text`. A message that is sent into the running chat is
    checked before it is stored, and returned to its sender if the check trips. Raises UsageError
    for invalid options.
    """
    if on not in ("input", "output"):
        raise UsageError(f"guardrail(on={on!r}): on must be 'input' or 'output'")
    if on_fail not in ("stop", "guide") or (on_fail == "guide" and on == "input"):
        raise UsageError(
            f"guardrail(on={on!r}, on_fail={on_fail!r}): on_fail must be 'stop', or 'guide' with "
            "on='output'"
        )
    if not timeout > 0:
        raise UsageError(f"guardrail(timeout={timeout!r}): timeout must be above 0 seconds")
    if not text.strip():
        raise UsageError(f"guardrail(text={text!r}): text must not be empty; the user sees it")
    judge = partial(judged, check, timeout, text, name)
    add = definer(name=name, inherit=inherit, required=required)
    if on == "output":
        check_answer = partial(_check_answer, judge, name, on_fail)
        return (add("onResponse", check_answer, priority=LAST, withhold=not live),)
    steer = add("preSteer", partial(_steer, judge, name), priority=GUARD)
    if parallel:
        return (*_Input(judge, name).hooks(add), steer)

    async def first(ctx: PreChat[Any]) -> Stop | None:
        finding = await judge(ctx.request.message, ctx.run)
        if finding is None:
            return None
        await _tell(ctx.run, name, "input", finding)
        return Stop(REASON, finding.text)

    return (add("preChat", first, priority=GUARD), steer)


async def _tell(run: Run[Any], name: str, on: str, finding: Finding) -> None:
    await run.status("guardrail", {"name": name, "on": on, "why": finding.why})


async def _steer(judge: Any, name: str, ctx: PreSteer[Any]) -> Deny | None:
    finding = await judge(ctx.message, ctx.run)
    if finding is None:
        return None
    await _tell(ctx.run, name, "input", finding)
    return Deny(finding.text)


async def _check_answer(judge: Any, name: str, on_fail: str, ctx: OnResponse[Any]) -> Guide | None:
    finding = await judge(ctx.response, ctx.run) if ctx.response.text.strip() else None
    if finding is None:
        return None
    await _tell(ctx.run, name, "output", finding)
    if on_fail == "guide" and finding.why == "tripped":
        return Guide(finding.text)
    raise StopChat(REASON, finding.text)


class Trip(NamedTuple):
    """The finding of a check, and the ids of the messages that later requests leave out."""

    finding: Finding
    blocked: list[str]


class _Input:
    """The hooks of a check that runs in parallel with the model."""

    def __init__(self, judge: Any, name: str) -> None:
        self._judge = judge
        self._name = name
        self._checks = PerChat(lambda run: set[bool]())

    def hooks(self, add: Add) -> Hooks:
        return (
            add("preRequest", self.leave_out, priority=GUARD),
            add("aroundRequest", self.request, priority=GUARD),
            add("onResponse", self.after, priority=GUARD),
            add("preMessage", self.remember, priority=GUARD),
            self._checks.forget(add),
        )

    def leave_out(self, ctx: PreRequest[Any]) -> ModelRequest | None:
        """Remove messages that were stopped earlier from the request."""
        blocked = set(ctx.run.meta.get(KEY, ()))
        if not blocked:
            return None
        rest: list[Message] = []
        out = False
        for message in ctx.request.messages:
            if isinstance(message, UserMessage):
                out = message.id in blocked
            if not out:
                rest.append(message)
        return ctx.request.replace(messages=tuple(rest))

    async def request(self, ctx: AroundRequest[Any], proceed: CallModel) -> ModelResponse:
        messages = self._open(ctx.run, ctx.iteration)
        if not messages:
            return await proceed()
        task = asyncio.create_task(self._trip(messages, ctx.run))
        try:
            response = await _until_tripped(task, proceed)
            trip = await task
        finally:
            task.cancel()
            await asyncio.wait([task])
        await self._settle(ctx.run, trip)
        assert response is not None
        return response

    async def after(self, ctx: OnResponse[Any]) -> None:
        """Check the input if a hook answered in place of the model, without `request`."""
        messages = self._open(ctx.run, ctx.iteration)
        if messages:
            await self._settle(ctx.run, await self._trip(messages, ctx.run))

    def _open(self, run: Run[Any], iteration: int) -> list[UserMessage]:
        """The user's messages that may not have been checked yet.

        An answer is kept only after its check. So a message before the last complete answer is
        checked, unless the answer is the text of a Stop; `remember` keeps the ids of such messages.
        A message of an earlier chat that was broken off may not be checked.
        """
        if iteration or self._checks.of(run):
            return []
        unchecked = set(run.meta.get(UNCHECKED, ()))
        open: list[UserMessage] = []
        last = True
        for message in reversed(run.history):
            if isinstance(message, UserMessage):
                if last or message.id in unchecked:
                    open.append(message)
            elif not (isinstance(message, AssistantMessage) and message.partial):
                last = False
                if not unchecked:
                    break
        return open[::-1]

    async def _trip(self, messages: list[UserMessage], run: Run[Any]) -> Trip | None:
        """Check the messages in order; returns the first finding, None if all pass."""
        for place, message in enumerate(messages):
            finding = await self._judge(message, run)
            if finding is not None:
                return Trip(finding, [message.id for message in messages[place:]])
        return None

    async def _settle(self, run: Run[Any], trip: Trip | None) -> None:
        """Note that all checks have passed, or stop the chat."""
        if trip is None:
            self._checks.of(run).add(True)
            return
        run.state[KEY] = trip.blocked
        await _tell(run, self._name, "input", trip.finding)
        raise StopChat(REASON, trip.finding.text)

    def remember(self, ctx: PreMessage[Any]) -> None:
        """Store the ids of stopped messages, together with the text for the user.

        Also store the ids of messages that the text of a Stop leaves unchecked.
        """
        run, message = ctx.run, ctx.message
        blocked = run.state.get(KEY, ())
        for id in blocked:
            ids = {message.id for message in run.history}
            before = [key for key in run.meta.get(KEY, ()) if key in ids and key != id]
            run.meta[KEY] = [*before, id]
        if not isinstance(message, AssistantMessage) or message.partial:
            return
        rest: list[str] = []
        if blocked or not self._checks.of(run):  # otherwise all checks have passed
            unchecked = [message.id for message in self._open(run, run.iteration)]
            every = dict.fromkeys([*run.meta.get(UNCHECKED, ()), *unchecked])
            rest = [id for id in every if id not in blocked]
        if rest:
            run.meta[UNCHECKED] = rest
        else:
            run.meta.pop(UNCHECKED, None)


async def _until_tripped(
    task: asyncio.Task[Trip | None], proceed: CallModel
) -> ModelResponse | None:
    """Return the model's answer; None if the check tripped first and the call was cancelled."""
    loop = asyncio.get_running_loop()
    scope = asyncio.timeout(None)
    try:
        async with scope:

            def done(task: asyncio.Task[Trip | None]) -> None:
                if not task.cancelled() and not task.exception() and task.result() is not None:
                    scope.reschedule(loop.time())

            task.add_done_callback(done)
            try:
                return await proceed()
            finally:
                task.remove_done_callback(done)
    except TimeoutError:
        if not scope.expired():
            raise
    return None
