"""`hookline approvals` and `hookline review`: remembered rules, and what reviewers decided."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from cyclopts import Parameter

from hookline.cli._options import Debug, Format
from hookline.cli._target import store_at
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.screen import Screen
from hookline.cli._terminal.styled_lines import Line
from hookline.errors import UsageError
from hookline.hooks import read_reviews
from hookline.storage import Rule, list_rules, revoke_rule

Output = Annotated[Format, Parameter(help="json: data for programs.")]


def approvals(
    store: Annotated[str, Parameter(help="A store, such as sqlite:///chats.db.")],
    /,
    *,
    conversation: Annotated[
        str | None,
        Parameter(help="Rules of this conversation, instead of those that hold everywhere."),
    ] = None,
    revoke: Annotated[str | None, Parameter(help="The id of a rule to remove.")] = None,
    output: Output = "text",
    debug: Debug = False,
) -> None:
    """List the remembered approvals of a store, or revoke one."""
    rules = asyncio.run(_rules(store, conversation, revoke))
    if output == "json":
        print(json.dumps([json.loads(rule.to_json()) for rule in rules], indent=2))
        return
    screen = Screen()
    for line in rule_lines(rules):
        screen.line(line)


async def _rules(url: str, conversation: str | None, revoke: str | None) -> tuple[Rule, ...]:
    async with store_at(url) as store:
        if revoke is not None and not await revoke_rule(store, revoke, conversation):
            raise UsageError(
                f"there is no rule {revoke!r} here; list the rules without --revoke, or name the "
                "conversation with --conversation"
            )
        return await list_rules(store, conversation)


def rule_lines(rules: Sequence[Rule]) -> list[Line]:
    """Return a line for each rule: its id, its agent, the call, who made it, and its end."""
    lines: list[Line] = []
    for rule in rules:
        call = f"{rule.tool}({json.dumps(rule.arguments)})"
        end = "" if rule.until is None else f" until {datetime.fromtimestamp(rule.until):%Y-%m-%d}"
        by = f" by {rule.by}" if rule.by else ""
        line: Line = [("dim", f"{rule.id}  "), ("name", strict(f"{rule.agent}: "))]
        lines.append([*line, ("", strict(call)), ("dim", strict(f"{by}{end}"))])
    return lines or [[("dim", "no remembered approvals")]]


def review(
    action: Annotated[Literal["report"], Parameter(help="report: compare with people.")],
    file: Annotated[str, Parameter(help="The file of review(record=…).")],
    /,
    *,
    output: Output = "text",
    debug: Debug = False,
) -> None:
    """Compare the decisions of a reviewer with the answers of people."""
    report = read_reviews(file)
    pairs = sorted(report.counts.items())
    if output == "json":
        counts = [{"review": pair[0], "person": pair[1], "calls": n} for pair, n in pairs]
        data = {"reviews": report.reviews, "answers": counts, "differences": report.differences}
        print(json.dumps(data, indent=2))
        return
    screen = Screen()
    answers = sum(report.counts.values())
    screen.line([("", f"{report.reviews} reviews, {answers} of them answered by a person too")])
    for (decision, answer), calls in pairs:
        screen.line([("", f"{calls:>6}  review: {decision:<8} person: {answer}")])
    for line in report.differences:
        text = f"{line.get('tool')} {line.get('call')}: {line.get('reason')}"
        screen.line(
            [("mark", f"  {line['decision']}, person: {line['answer']}  "), ("", strict(text))]
        )
