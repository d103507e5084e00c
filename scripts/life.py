"""docs/images/life.svg: the life of a chat with its hook points, drawn from the table.

What stands where is told here, in `LIFE`; what each point is (its kind, and so its colour) is the
table's. A point that is missing here, is here twice in one moment, or stands before one that the
table has earlier, is an error: the picture cannot go stale in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import NamedTuple

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
    points: tuple[str, ...] = ()


def rect(kind: str, x: float, y: float, width: float, height: float, rx: int) -> str:
    size = f'width="{width:g}" height="{height:g}" rx="{rx}"'
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" {size}/>\n'


def text(x: float, y: float, said: str, kind: str, anchor: str = "middle") -> str:
    return (
        f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(said)}</text>\n'
    )


def pill(name: str) -> Thing:
    """A point that is passed."""
    kind = TABLE[name].kind
    width = round(CHAR * len(name) + 20)

    def draw(x: float, y: float) -> str:
        box = rect(kind, x, y, width, PILL, 13)
        return box + text(x + width / 2, y + 17.5, name, "name")

    return Thing(width, PILL, draw, (name,))


def note(said: str) -> Thing:
    """What is no hook point: the model, a tool, a word between."""
    width = round(SMALL * len(said) + 12)
    return Thing(width, PILL, lambda x, y: text(x + width / 2, y + 17, said, "note"))


def row(*things: Thing, arrows: bool = True) -> Thing:
    """Things that follow each other."""
    gap = GAP if arrows else 10.0
    width = sum(each.width for each in things) + gap * (len(things) - 1)
    height = max(each.height for each in things)

    def draw(x: float, y: float) -> str:
        out = ""
        for place, each in enumerate(things):
            if place and arrows:
                out += (
                    f'<path class="arrow" d="M{x - gap + 5:g} {y + height / 2:g}h{gap - 13:g}"/>\n'
                )
            out += each.draw(x, y + (height - each.height) / 2)
            x += each.width + gap
        return out

    return Thing(width, height, draw, tuple(name for each in things for name in each.points))


def column(*things: Thing, gap: float = 8.0) -> Thing:
    """Things below each other."""
    width = max(each.width for each in things)
    height = sum(each.height for each in things) + gap * (len(things) - 1)

    def draw(x: float, y: float) -> str:
        out = ""
        for each in things:
            out += each.draw(x, y)
            y += each.height + gap
        return out

    return Thing(width, height, draw, tuple(name for each in things for name in each.points))


def frame(kind: str, title: str, inner: Thing, *, width: float = 0) -> Thing:
    """A frame around things, with a title; a wrapper's is the point itself."""
    named = title in TABLE
    width = max(width, inner.width + 28, CHAR * len(title) + 36)
    height = inner.height + 44
    points = ((title,) if named else ()) + inner.points

    def draw(x: float, y: float) -> str:
        box = rect(kind, x, y, width, height, 9)
        head = text(x + 14, y + 20, title, "name" if named else "note", "start")
        return box + head + inner.draw(x + 14, y + 31)

    return Thing(width, height, draw, points)


def message(whose: str) -> Thing:
    return frame("group", whose, row(pill("preMessage"), pill("onMessage"), arrows=False))


REQUEST = row(
    pill("preSteer"),
    pill("preRequest"),
    frame(TABLE["aroundRequest"].kind, "aroundRequest", row(note("the model"), pill("onDelta"))),
    pill("onResponse"),
    message("the answer is written"),
)
CALLS = row(
    pill("preToolCall"),
    frame(TABLE["aroundToolCall"].kind, "aroundToolCall", note("the tool")),
    column(pill("onToolCallResult"), pill("onToolCallError")),
    message("each result is written"),
)
STEP = column(
    REQUEST,
    row(
        frame("group", "each call, side by side; results in the model's order", CALLS),
        pill("onStep"),
    ),
    gap=14,
)
CHAT = column(
    row(pill("onChatStart"), pill("preChat"), message("the user's message is written")),
    frame("loop", "a step, again until the model asks for no tool", STEP),
    row(
        pill("preStop"),
        frame(
            "group",
            "exactly one of",
            row(pill("onChatDone"), pill("onChatAbort"), pill("onChatError"), arrows=False),
        ),
        pill("onChatEnd"),
    ),
    gap=14,
)
BESIDE = row(
    frame(
        "group",
        "whenever it happens",
        row(pill("onStatus"), pill("onApproval"), pill("onHook"), arrows=False),
    ),
    frame(
        "group",
        "a message of a history is changed",
        row(pill("preMessageUpdate"), pill("onMessageUpdate"), arrows=False),
    ),
    arrows=False,
)
SCOPES = frame(
    "group",
    "tools come and go",
    row(pill("onScopeRegister"), pill("onScopeUnregister"), arrows=False),
)
LIFE = column(frame(TABLE["aroundChat"].kind, "aroundChat", CHAT), BESIDE, SCOPES, gap=14)

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


def check() -> None:
    """Refuse a picture that does not fit the table."""
    seen = list(dict.fromkeys(LIFE.points))
    if set(seen) != set(TABLE):
        raise ValueError(f"not in the picture, or not in the table: {set(seen) ^ set(TABLE)}")
    written = ("preMessage", "onMessage")  # three times in a chat
    life = [name for name in TABLE if name in CHAT.points and name not in written]
    drawn = [name for name in seen if name in CHAT.points and name not in written]
    if drawn != life:
        raise ValueError(f"the picture has another order than the table: {drawn}")


def legend(x: float, y: float) -> str:
    out = ""
    for kind, said in KINDS.items():
        out += rect(kind, x, y, 22, 14, 7)
        out += text(x + 30, y + 11.5, said, "note", "start")
        x += 30 + SMALL * len(said) + 26
    return out


def svg() -> str:
    check()
    width, height = LIFE.width + 32, LIFE.height + 66
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img">\n'
        "<title>The life of a chat, and its hook points</title>\n"
        "<!-- Generated from the table of hook points by scripts/generate.py. Do not edit. -->\n"
        f"<style>{STYLE}</style>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="5" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>\n'
        f"{rect('paper', 0.5, 0.5, width - 1, height - 1, 8)}"
        f"{legend(18, 18)}{LIFE.draw(16, 48)}</svg>\n"
    )
