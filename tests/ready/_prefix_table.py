"""A loop of 40 tool steps with each ready-made hook: what of its requests a cache can reuse."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

from hookline import Agent, HookDef, Limits, ModelRequest, Run, tool
from hookline.hooks import (
    MemoryCache,
    RequestPrefix,
    allow_tools,
    approve,
    audit,
    budget,
    by_sentence,
    cache,
    deny_commands,
    fallback,
    guardrail,
    log,
    pin_tools,
    rate_limit,
    redact,
    retry,
    review,
    summarize,
    truncate,
    watch_prefix,
    window,
)
from hookline.hooks._context.summarize import PROMPT
from hookline.models import PrefixMeter
from hookline.testing import Answer, ScriptedModel, Turn, call
from hookline.workspace import Workspace

STEPS = 40
CACHE_PRICE = 0.1
"""The price of a token that is read from a cache, as a part of the price of any other."""
SYSTEM = "You are a careful assistant. " * 70  # 2 kB


@tool
async def look(n: int) -> str:
    """Look at a place."""
    size = 40_000 if n % 10 == 0 else 1000
    return f"place {n}\n" + "a line of text here\n" * (size // 20)


@tool
async def unused_tool() -> str:
    """Do nothing."""
    return "used"


class Row(NamedTuple):
    """The figures of a loop with one hook."""

    share: float
    """The part of all requests that equals the start of the request before."""
    cost: float
    """The estimated tokens of all requests, with the cached ones at their price."""
    own: float
    """The same of the requests for summaries."""


def workspace(folder: Path) -> Workspace:
    project = folder / "project"
    project.mkdir(exist_ok=True)
    return Workspace(project, state=folder / "state", mode="read")


def nothing(text: str, run: Run) -> None:
    return None


HOOKS = {
    "nothing": lambda folder: (),
    "window": lambda folder: window(40),
    "window, keep": lambda folder: window(40, keep=10),
    "window, tokens": lambda folder: window(tokens=20_000),
    "summarize": lambda folder: summarize(20_000),
    "truncate": lambda folder: truncate(2000),
    "offload": lambda folder: workspace(folder).offload(2000),
    "budget": lambda folder: budget(steps=99, tokens=10**9),
    "allow_tools": lambda folder: allow_tools("look"),
    "pin_tools": lambda folder: pin_tools({}, "unused_*"),
    "deny_commands": lambda folder: deny_commands("rm -rf"),
    "rate_limit": lambda folder: rate_limit(99),
    "approve": lambda folder: approve("unused_tool"),
    "review": lambda folder: review(ScriptedModel(), tools=["unused_tool"]),
    "redact": lambda folder: redact("place"),
    "by_sentence": lambda folder: by_sentence(nothing),
    "guardrail": lambda folder: guardrail(lambda message, run: None),
    "cache": lambda folder: cache(MemoryCache()),
    "retry": lambda folder: retry(),
    "fallback": lambda folder: fallback(ScriptedModel()),
    "audit": lambda folder: audit(folder / "audit.jsonl"),
    "log": lambda folder: log(),
    "watch_prefix": lambda folder: watch_prefix(),
}
SHORTENING = ("window", "window, keep", "window, tokens", "summarize", "truncate", "offload")
"""The hooks that make requests shorter, and therefore cheaper."""


def looking() -> ScriptedModel:
    """A model that looks 40 times, and writes a summary when it is asked for one."""
    numbers = count()

    def answer(request: ModelRequest) -> Answer:
        if is_summary(request):
            return "s" * 800
        n = next(numbers)
        return Turn(text="I look.", tool_calls=[call("look", n=n)]) if n < STEPS else "ok"

    return ScriptedModel(answer, repeat=True)


def is_summary(request: ModelRequest) -> bool:
    return request.messages[-1].text == PROMPT


def own_cost(requests: Sequence[ModelRequest]) -> float:
    """The cost of the requests for summaries, each after the chat's request before it."""
    meter, cost = PrefixMeter(), 0.0
    for request in requests:
        prefix = (meter.copy() if is_summary(request) else meter).measure(request)
        if prefix is not None and is_summary(request):
            cost += prefix.tokens - prefix.common * (1 - CACHE_PRICE)
    return cost


async def measure(hooks: tuple[HookDef, ...]) -> Row:
    """Run the loop with these hooks."""
    figures: list[RequestPrefix] = []
    model = looking()
    agent = Agent(
        model,
        tools=[look, unused_tool],
        system=SYSTEM,
        hooks=[*hooks, *watch_prefix(figures.append)],
        limits=Limits(steps=STEPS + 5),
    )
    await agent.chat("Look around.")
    common = sum(figure.prefix.common for figure in figures)
    tokens = sum(figure.prefix.tokens for figure in figures)
    assert len(figures) == STEPS
    return Row(
        share=common / tokens,
        cost=tokens - common * (1 - CACHE_PRICE),
        own=own_cost(model.requests),
    )


async def measure_all() -> dict[str, Row]:
    """The figures of each ready-made hook."""
    with tempfile.TemporaryDirectory() as folder:
        return {name: await measure(make(Path(folder))) for name, make in HOOKS.items()}


def table(rows: dict[str, Row], whole: Row) -> str:
    """The figures as a Markdown table; costs as parts of that of `whole`."""
    lines = [
        f"| {name} | {row.share:.0%} | {row.cost / whole.cost:.2f} | {row.own / whole.cost:.2f} |"
        for name, row in rows.items()
    ]
    return "\n".join(["| hook | equal start | cost | its own calls |", "|---|---|---|---|", *lines])


BEGIN = "<!-- scripts/dev/prefix-table --write -->\n"
END = "\n<!-- end -->"


def with_table(page: str, rows: dict[str, Row]) -> str:
    """The page with the figures of the hooks that make requests shorter."""
    before, rest = page.split(BEGIN)
    short = {name: rows[name] for name in ("nothing", *SHORTENING)}
    return f"{before}{BEGIN}{table(short, rows['nothing'])}{END}{rest.split(END, 1)[1]}"
