"""The matrix of roads and guards, with the reasons for which a guard may be passed by.

`scripts/dev/guard-matrix` and the test of the matrix run the same roads.
"""

from __future__ import annotations

from typing import Final

from tests.guards import door_roads, roads  # noqa: F401 - they fill ROADS
from tests.guards.case import HELD, KINDS, ROADS, passage

# ── why a guard may be passed by ────────────────────────────────────────────────────────────

# Reasons: the start of the roads' names, the kinds (none: all), the text. The first one counts.
REASONS: Final[tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...]] = (
    (("bus=NullBus()",), (), "A `NullBus` runs no hook."),
    (
        ("agent.chat() inside a tool",),
        (),
        "The chat has the hooks of its own agent and global hooks; a warning is logged.",
    ),
    (("a tool calls the function",), (), "A function call is not a tool call."),
    (("a tool that the provider runs",), (), "No hook runs before a tool of the provider."),
    (("a client-side tool",), ("wrapper",), "No wrapper runs around a tool of the client."),
    (("",), ("wrapper",), "A wrapper is not a guard: it is not asked again, and not inherited."),
    (("global_hooks=False",), ("global",), "The agent leaves out global hooks."),
    (
        ("a sub-agent", "a wrapper changes the call of a sub-agent", "a handoff inside a sub-agent",
         "a live approver changes the arguments in a sub-agent",
         "resume of a sub-agent, guard on the top", "resume of a sub-agent three",
         "resume of a sub-agent by", "a durable approval in a sub-agent"),
        ("allow_tools",),
        "`allow_tools` is not inherited, since a sub-agent has its own tools.",
    ),
    (
        ("resume", "a live approver", "an approved call", "a remembered approval",
         "a durable approval", "a web client answers"),
        ("approve",),
        "A person has approved this very call, or has made a rule for it.",
    ),
    (("a hook answers the question",), ("approve",), "The hook answers the question of `approve`."),
    (
        ("a guard is added", "a wrapper runs an idempotent tool again, guard added",
         "a live approver, guard added", "a sub-agent, guard on the sub-agent",
         "resume of a sub-agent, guard on the sub-agent", "a call before it adds the guard",
         "a durable approval, guard added"),
        ("of the chat",),
        "The hooks of a chat are chosen when it begins; a sub-agent's chat has none.",
    ),
    (("an MCP client", "hookline chat"), ("of the chat",), "A client passes no hooks."),
)  # fmt: skip


def reason_at(road: str, kind: str) -> int | None:
    """The number of the reason for which this kind of guard may be passed by, from 1."""
    for number, (names, kinds, _text) in enumerate(REASONS, 1):
        if road.startswith(names) and (not kinds or kind in kinds):
            return number
    return None


Matrix = dict[str, dict[str, str]]


async def matrix() -> Matrix:
    """Run all kinds of guards on all roads."""
    return {name: {kind: await passage(kind, name) for kind in KINDS} for name in ROADS}


def _kinds(kinds: frozenset[str]) -> str:
    """The names of these kinds of guards, or of the others if those are fewer."""
    others = [kind for kind in KINDS if kind not in kinds]
    if not others:
        return "all"
    if len(others) < len(kinds):
        return f"all but {', '.join(f'`{kind}`' for kind in others)}"
    return ", ".join(f"`{kind}`" for kind in KINDS if kind in kinds)


def table(cells: Matrix) -> str:
    """The matrix as a section of docs/guards.md: where a guard is passed by, and why."""
    closed = [row for row in cells.values() if set(row.values()) == {HELD}]
    gaps: dict[tuple[int, frozenset[str]], list[str]] = {}
    for road, row in cells.items():
        passed = [kind for kind, result in row.items() if result != HELD]
        for reason in {reason_at(road, kind) or 0 for kind in passed}:
            kinds = frozenset(kind for kind in passed if (reason_at(road, kind) or 0) == reason)
            gaps.setdefault((reason, kinds), []).append(road)
    lines = [
        f"All {len(KINDS)} kinds of guards hold on {len(closed)} of {len(cells)} paths.",
        "On the others, the kinds that are not named here hold:",
        "",
        "| kind of guard | passed by on | why |",
        "|---|---|---|",
    ]
    for (reason, kinds), names in sorted(gaps.items(), key=lambda gap: gap[0][0]):
        why = REASONS[reason - 1][2] if reason else "**no reason**"
        first = [*names[:3], f"and {len(names) - 3} more"] if len(names) > 7 else names
        lines.append(f"| {_kinds(kinds)} | {'; '.join(first)} | {why} |")
    return "\n".join(lines)


OWN: Final = ("required", "declared", "add_hook", "add_hook, last", "tools=", "inherit=True")
"""The kinds of guards that a user writes for an agent."""


def promise(cells: Matrix) -> str:
    """What docs/security.md promises of these guards: the roads on which they do not hold."""
    gaps = {
        road: next(kind for kind in OWN if row[kind] != HELD)
        for road, row in cells.items()
        if any(row[kind] != HELD for kind in OWN)
    }
    lines = [
        f"A guard that you write holds on {len(cells) - len(gaps)} of the {len(cells)}",
        "[paths to a tool](guards.md#the-paths-to-a-tool). It does not hold on these:",
        "",
        "| path | why |",
        "|---|---|",
    ]
    for road, kind in gaps.items():
        number = reason_at(road, kind)
        lines.append(
            f"| {road} | {'**no reason**' if number is None else REASONS[number - 1][2]} |"
        )
    return "\n".join(lines)


BEGIN, END = "<!-- matrix -->", "<!-- end of the matrix -->"


def with_section(page: str, section: str) -> str:
    """The page with this section, such as `table(cells)`, in its place."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{section}\n\n{END}{rest.partition(END)[2]}"
