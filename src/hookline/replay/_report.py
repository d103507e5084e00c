"""The report of a replay: what would have become of each call, as a table, JSON or HTML."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias

import msgspec

from hookline.points import check_number
from hookline.replay._player import CallOutcome, Played
from hookline.replay._records import Record, failure_text

Now: TypeAlias = Literal[
    "denied",
    "asks",
    "changed",
    "answered",
    "stopped",
    "raised",
    "allowed",
    "result",
    "text",
    "ends",
]
"""What would become of a call or a chat: see the table in the documentation."""
WIDTH: Final = 44
REFUSALS: Final = frozenset({"denied", "stopped"})
COLUMNS: Final = ("chat", "step", "call", "was", "now", "by", "why")


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One difference that the change of hooks would have made."""

    chat: str
    """The id of the record."""
    step: int
    """The model's answer with the call, counted from 0."""
    call_id: str = ""
    """The call's id, unique in its conversation; empty if there is no call."""
    tool: str = ""
    """The tool; empty if the difference is not one of a call."""
    arguments: dict[str, Any] = {}
    """The arguments that the model wrote."""
    was: str = ""
    """The outcome with the agent's hooks as they are."""
    now: Now
    """The outcome with the change."""
    hook: str = ""
    """The names of the hooks that decided about the call."""
    reason: str = ""
    """The reason of a refusal, the prompts of a question, the new arguments or text."""
    after: bool = False
    """Whether the chat has differed before, so that the model might have written something else."""
    at: float | None = None
    """The time of the record."""

    @property
    def call(self) -> str:
        """The call as a line: `refund(amount=80, to='ann')`."""
        values = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.tool}({values})" if self.tool else ""

    def row(self) -> tuple[str, ...]:
        """The cells of the table, in the order of its columns."""
        now = f"{self.now} *" if self.after else self.now
        return (self.chat, str(self.step), self.call, self.was, now, self.hook, self.reason)


class Report(msgspec.Struct, kw_only=True):
    """What a change of hooks would have done to the recorded chats. Iterate over its verdicts."""

    chats: int = 0
    """The number of records."""
    verdicts: list[Verdict] = []
    """All differences, in the order of the records."""
    inexact: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Why records could not be played exactly, with the number of chats."""
    unreadable: list[str] = []
    """Conversations and logs that could not be read, with the reason."""

    def __iter__(self) -> Iterator[Verdict]:
        return iter(self.verdicts)

    def __len__(self) -> int:
        return len(self.verdicts)

    @property
    def differing(self) -> int:
        """The number of chats that would differ."""
        return len({verdict.chat for verdict in self.verdicts})

    @property
    def counts(self) -> Counter[str]:
        """The number of verdicts of each kind, without those after an earlier difference."""
        return Counter(verdict.now for verdict in self.verdicts if not verdict.after)

    def summary(self) -> str:
        """`1000 chats, 13 differ: asks 9, denied 4`, and what was inexact."""
        kinds = ", ".join(f"{now} {count}" for now, count in sorted(self.counts.items()))
        verb = "differs" if self.differing == 1 else "differ"
        head = f"{_amount(self.chats, 'chat')}, {self.differing} {verb}"
        lines = [f"{head}: {kinds}" if kinds else head]
        if any(verdict.after for verdict in self.verdicts):
            lines.append("* after an earlier difference in the chat")
        lines += [
            f"inexact in {_amount(count, 'chat')}: {why}"
            for why, count in self.inexact.most_common()
        ]
        lines += [f"unreadable: {why}" for why in self.unreadable]
        return "\n".join(lines)

    def table(self, limit: int = 50) -> str:
        """The first verdicts as lines of a table, and the summary."""
        check_number("limit", limit, whole=True)
        rows = [COLUMNS, *(verdict.row() for verdict in self.verdicts[:limit])]
        cells = [[_cut(_plain(cell)) for cell in row] for row in rows]
        widths = [max(len(row[column]) for row in cells) for column in range(len(COLUMNS))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]
        more = len(self.verdicts) - limit
        lines = lines if self.verdicts else []
        lines += [f"… and {more} more"] if more > 0 else []
        return "\n".join([*lines, self.summary()])

    def json(self) -> str:
        """The whole report as JSON text."""
        return json.dumps({**msgspec.to_builtins(self), "differing": self.differing})

    def html(self) -> str:
        """The report as an HTML section."""
        head = "".join(f"<th>{column}</th>" for column in COLUMNS)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in verdict.row()) + "</tr>"
            for verdict in self.verdicts
        )
        summary = html.escape(self.summary()).replace("\n", "<br>")
        return f"<section><p>{summary}</p><table><tr>{head}</tr>{rows}</table></section>"


def _amount(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _plain(text: str) -> str:
    """The text in one line, without control characters."""
    return "".join(char if char.isprintable() else " " for char in text)


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


# ── comparing two runs ──────────────────────────────────────────────────────────────────────


def verdicts_of(record: Record, base: Played, candidate: Played) -> list[Verdict]:
    """The differences between the chat as the agent is, and the chat with the change."""
    verdicts: list[Verdict] = []
    for id, call in base.calls.items():
        other = candidate.calls.get(id)
        difference = None if other is None else _difference(call, other)
        if other is None or difference is None:
            continue
        now, reason = difference
        verdict = Verdict(
            chat=record.id,
            step=call.step,
            call_id=id,
            tool=call.tool,
            arguments=call.arguments,
            was=f"asked, {call.outcome}" if call.prompts else call.outcome,
            now=now,
            hook=", ".join(name for name in other.hooks if name not in call.hooks),
            reason=reason,
            after=any(earlier.step < call.step for earlier in verdicts),
            at=record.at,
        )
        verdicts.append(verdict)
    verdicts += _end(record, verdicts, base, candidate)
    return verdicts


def _difference(call: CallOutcome, other: CallOutcome) -> tuple[Now, str] | None:
    """What has become of the call, and why; None if nothing has changed."""
    if other.outcome == "aborted" != call.outcome:
        return None  # the chat has ended: `_end` says how
    if other.prompts and not call.prompts:
        return "asks", " / ".join(other.prompts)
    if other.outcome != call.outcome:
        return _other_outcome(call, other)
    if other.ran != call.ran:
        return "changed", json.dumps(call.arguments if other.ran is None else other.ran)
    if call.prompts and not other.prompts and other.outcome == "ok":
        return "allowed", ""  # without a person
    if other.text != call.text and call.outcome not in REFUSALS:
        return "result", other.text
    return None


def _other_outcome(call: CallOutcome, other: CallOutcome) -> tuple[Now, str]:
    match other.outcome:
        case "denied" | "stopped" as refused:
            return refused, failure_text(other.text)
        case "answered":
            return "answered", other.text
        case "error" if call.outcome not in REFUSALS:
            return "raised", failure_text(other.text)
        case _:
            return "allowed", ""


def _end(record: Record, earlier: list[Verdict], base: Played, candidate: Played) -> list[Verdict]:
    """The differences in the texts and in the end of the chat."""
    step = max((call.step for call in candidate.calls.values()), default=0)
    if candidate.error != base.error and candidate.error is not None:
        now, reason, was = "raised", candidate.error, base.error or base.stop or "done"
    elif candidate.stop != base.stop or len(candidate.texts) < len(base.texts):
        now, reason, was = "ends", candidate.stop or "done", base.stop or "done"
    elif candidate.texts != base.texts:
        pairs = zip(base.texts, candidate.texts, strict=False)
        was, reason = next(pair for pair in pairs if pair[0] != pair[1])
        now = "text"
    else:
        return []
    return [
        Verdict(
            chat=record.id,
            step=step,
            was=was,
            now=now,  # type: ignore[arg-type]
            reason=reason,
            after=bool(earlier),
            at=record.at,
        )
    ]


def inexact_reasons(record: Record, base: Played) -> set[str]:
    """Why the chat with the agent's hooks as they are differs from its record."""
    reasons: set[str] = set()
    if base.error is not None:
        reasons.add(f"the agent as it is ends with {base.error.partition(':')[0]}")
    for id, call in record.calls.items():
        played = base.calls.get(id)
        if played is None:
            reasons.add("the agent as it is does not come to a recorded call")
        elif "UnknownTool" in played.text and played.outcome != call.outcome:
            reasons.add(f"the agent has no tool {played.tool!r} any more")
        elif played.outcome != call.outcome:
            reasons.add(
                f"a call of {played.tool!r} was {call.outcome}, and is {played.outcome} with the "
                "agent as it is"
            )
        elif (played.ran or played.arguments) != (call.arguments or played.arguments):
            reasons.add(f"a call of {played.tool!r} ran with other arguments")
    return reasons
