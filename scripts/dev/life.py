"""docs/images/life.svg: the life of a chat with its hook points, drawn from the table.

A row of the table says at which moment of a chat its point fires. `LIFE` says where each moment is
drawn, so a new point of a known moment needs no change here.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import NamedTuple

from hookline._hooks.points import Moment
from hookline.points import TABLE

CHAR = 7.3  # width of a letter of the names, which are set in a font of one width
SMALL = 6.2  # the same of what explains them
GAP = 30.0  # between two things in a row, with an arrow in it
PILL = 26.0


class Thing(NamedTuple):
    """Something that can be drawn: its size, and its SVG at a place."""

    width: float
    height: float
    draw: Callable[[float, float], str]


def rect(kind: str, x: float, y: float, width: float, height: float, rx: int) -> str:
    size = f'width="{width:g}" height="{height:g}" rx="{rx}"'
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" {size}/>\n'


def text(x: float, y: float, label: str, kind: str, anchor: str = "middle") -> str:
    return (
        f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(label)}</text>\n'
    )


def pill(name: str) -> Thing:
    """A point that is passed."""
    kind = TABLE[name].kind
    width = round(CHAR * len(name) + 20)

    def draw(x: float, y: float) -> str:
        box = rect(kind, x, y, width, PILL, 13)
        return box + text(x + width / 2, y + 17.5, name, "name")

    return Thing(width, PILL, draw)


def note(label: str) -> Thing:
    """What is no hook point: the model, a tool, a word between."""
    width = round(SMALL * len(label) + 12)
    return Thing(width, PILL, lambda x, y: text(x + width / 2, y + 17, label, "note"))


def row(*things: Thing, arrows: bool = True) -> Thing:
    """Things that follow each other."""
    gap = GAP if arrows else 10.0
    width = sum(thing.width for thing in things) + gap * (len(things) - 1)
    height = max(thing.height for thing in things)

    def draw(x: float, y: float) -> str:
        out = ""
        for place, thing in enumerate(things):
            if place and arrows:
                out += (
                    f'<path class="arrow" d="M{x - gap + 5:g} {y + height / 2:g}h{gap - 13:g}"/>\n'
                )
            out += thing.draw(x, y + (height - thing.height) / 2)
            x += thing.width + gap
        return out

    return Thing(width, height, draw)


def column(*things: Thing, gap: float = 8.0) -> Thing:
    """Things below each other."""
    width = max(thing.width for thing in things)
    height = sum(thing.height for thing in things) + gap * (len(things) - 1)

    def draw(x: float, y: float) -> str:
        out = ""
        for thing in things:
            out += thing.draw(x, y)
            y += thing.height + gap
        return out

    return Thing(width, height, draw)


def frame(kind: str, title: str, inner: Thing) -> Thing:
    """A frame around things, with a title; a wrapper's is the point itself."""
    named = title in TABLE
    width = max(inner.width + 28, CHAR * len(title) + 36)
    height = inner.height + 44

    def draw(x: float, y: float) -> str:
        box = rect(kind, x, y, width, height, 9)
        head = text(x + 14, y + 20, title, "name" if named else "note", "start")
        return box + head + inner.draw(x + 14, y + 31)

    return Thing(width, height, draw)


def points(moment: Moment) -> list[Thing]:
    """The points of a moment that are no wrappers, in the order of the table."""
    specs = [spec for spec in TABLE.values() if spec.moment == moment]
    return [pill(spec.name) for spec in specs if spec.kind != "wrapper"]


def group(title: str, moment: Moment) -> Thing:
    """A frame around the points of a moment."""
    return frame("group", title, row(*points(moment), arrows=False))


def wrapped(moment: Moment, inner: Thing) -> Thing:
    """A thing inside the frames of a moment's wrappers; the first wrapper is outermost."""
    for spec in reversed(TABLE.values()):
        if spec.moment == moment and spec.kind == "wrapper":
            inner = frame("wrapper", spec.name, inner)
    return inner


REQUEST = row(
    *points("request"),
    wrapped("model", row(note("the model"), *points("delta"))),
    *points("response"),
    group("the answer is written", "message"),
)
CALLS = row(
    *points("call"),
    wrapped("tool", note("the tool")),
    column(*points("result")),
    group("each result is written", "message"),
)
STEP = column(
    REQUEST,
    row(
        frame("group", "each call, side by side; results in the model's order", CALLS),
        *points("step"),
    ),
    gap=14,
)
CHAT = column(
    row(*points("start"), group("the user's message is written", "message")),
    frame("loop", "a step, again until the model asks for no tool", STEP),
    row(*points("stop"), group("exactly one of", "outcome"), *points("end")),
    gap=14,
)
BESIDE = row(
    group("whenever it happens", "anytime"),
    group("a message of a history is changed", "update"),
    arrows=False,
)
SCOPES = group("tools come and go", "scope")
LIFE = column(wrapped("chat", CHAT), BESIDE, SCOPES, gap=14)

KINDS = {
    "observer": "an observer sees",
    "interceptor": "an interceptor changes, answers or refuses",
    "wrapper": "a wrapper goes around",
}

STYLE = """
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.name { fill: #1b1f24; }
.note { fill: #57606a; font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
.paper { fill: #ffffff; stroke: #d0d7de; }
.observer { fill: #ddf0ff; stroke: #2f7dc0; }
.interceptor { fill: #dcf5e3; stroke: #2b8a4b; }
.wrapper { fill: #fff7e6; stroke: #b7791f; stroke-width: 1.6; }
.loop { fill: #f6f8fa; stroke: #8c959f; stroke-dasharray: 5 4; }
.group { fill: none; stroke: #b8c0c8; }
.arrow { fill: none; stroke: #57606a; stroke-width: 1.4; marker-end: url(#tip); }
.tip { fill: #57606a; }
@media (prefers-color-scheme: dark) {
  .name { fill: #e6edf3; }
  .note { fill: #a5b0bb; }
  .paper { fill: #161b22; stroke: #30363d; }
  .observer { fill: #12324d; stroke: #4a9ae0; }
  .interceptor { fill: #12391f; stroke: #4bb36b; }
  .wrapper { fill: #2b2413; stroke: #d29922; }
  .loop { fill: #1d232b; stroke: #768390; }
  .group { stroke: #4a535d; }
  .arrow { stroke: #a5b0bb; }
  .tip { fill: #a5b0bb; }
}
"""


def legend(x: float, y: float) -> str:
    out = ""
    for kind, label in KINDS.items():
        out += rect(kind, x, y, 22, 14, 7)
        out += text(x + 30, y + 11.5, label, "note", "start")
        x += 30 + SMALL * len(label) + 26
    return out


def svg() -> str:
    width, height = LIFE.width + 32, LIFE.height + 66
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img">\n'
        "<title>The life of a chat, and its hook points</title>\n"
        "<!-- Generated by scripts/dev/generate.py from the table of hook points. "
        "Do not edit. -->\n"
        f"<style>{STYLE}</style>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="5" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>\n'
        f"{rect('paper', 0.5, 0.5, width - 1, height - 1, 8)}"
        f"{legend(18, 18)}{LIFE.draw(16, 48)}</svg>\n"
    )
