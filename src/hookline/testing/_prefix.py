"""`assert_prefix_kept`: the hooks of an agent keep the start of requests in a long tool loop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from hookline import Agent, Approve, Conversation, Limits, ModelRequest, Stop, Tool, define_hook
from hookline.hooks import RequestPrefix, watch_prefix
from hookline.points import OnStep, check_number
from hookline.testing._script import ScriptedModel
from hookline.testing._turn import Answer, call

STEP: Final = "hookline_probe_step"
RESULT: Final = "The result of a step of the probe. " * 30  # about a kilobyte


async def assert_prefix_kept(
    agent: Agent[Any], *, share: float = 0.85, steps: int = 40, deps: Any = None
) -> None:
    """Check that requests of a long tool loop begin like the request before, so that they are
    cached.

    The agent's hooks run in a chat of `steps` requests with a scripted model, which calls a tool of
    the check. No tool, model or store of the agent is called. At least `share` of all requests must
    equal the start of the request before. Raises AssertionError that names the hooks that moved the
    prefix, and UsageError for fewer than two steps.
    """
    check_number("steps", steps, whole=True, least=2)
    figures: list[RequestPrefix] = []

    def answer(request: ModelRequest) -> Answer:
        return call(STEP) if request.tools else "A summary."

    def stop(ctx: OnStep[Any]) -> Stop | None:
        return Stop("the check is over") if ctx.iteration + 1 >= steps else None

    await agent.chat(
        "Work for many steps.",
        conversation=Conversation(),
        deps=deps,
        model=ScriptedModel(answer, repeat=True),
        tools=[Tool(_step, name=STEP)],
        limits=Limits(steps=steps),
        approver=_approve,
        hooks=[*watch_prefix(figures.append, tokens=1), define_hook("onStep", stop, name="check")],
    )
    if not figures:
        raise AssertionError(
            "the chat ended after one request, so nothing can be compared; remove the hook that "
            "ends it from the agent of this check"
        )
    common = sum(figure.prefix.common for figure in figures)
    total = common / sum(figure.prefix.tokens for figure in figures)
    if total < share:
        raise AssertionError(
            f"{total:.0%} of the requests equal the start of the request before, less than "
            f"{share:.0%}; a prompt cache cannot reuse the rest:\n{_moves(figures)}"
        )


async def _approve(request: Any, run: Any) -> Approve:
    return Approve()


def _step() -> str:
    """Do a step."""
    return RESULT


def _moves(figures: Iterable[RequestPrefix]) -> str:
    return "\n".join(
        f"  request {figure.iteration + 1}: {figure.prefix.share:.0%}, the first difference is "
        f"{figure.prefix.differs}, moved by {figure.hook or 'no hook'}"
        for figure in figures
        if figure.prefix.differs is not None
    )
