"""Pictures of the guides, drawn from the texts below: who tells whom what, from top to bottom.

docs/images/{kinds,stream,approval,lives}.svg are made by scripts/dev/generate.py.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from life import SMALL, STYLE, rect, text

LANE: Final = 30  # between two lines of a picture
TIP: Final = 6
ASIDE: Final = 18.0  # of a box, on each side of its text


class Arrow(NamedTuple):
    """Something goes from one actor to another; `dashed`: an answer, or something seen."""

    start: int
    end: int
    said: str
    dashed: bool = False


class Box(NamedTuple):
    """An actor does something; `kind`: which colour."""

    actor: int
    said: str
    kind: str = "interceptor"


class Break(NamedTuple):
    """Something happens to all, or time passes."""

    said: str


class Ends(NamedTuple):
    """An actor's process is gone."""

    actor: int
    said: str


Line = Arrow | Box | Break | Ends


class Sketch(NamedTuple):
    """A picture: its title, its actors with the distance to the one before, and its lines."""

    title: str
    actors: tuple[tuple[str, int], ...]
    lines: tuple[Line, ...]


KINDS: Final = Sketch(
    "The three kinds of hook",
    (("the chat", 0), ("hook 1", 150), ("hook 2", 190), ("the tool", 190)),
    (
        Break("observers see it, in the order of their priority"),
        Arrow(0, 1, "onMessage"),
        Arrow(0, 2, "onMessage"),
        Break("interceptors form a chain: each may change what the next one gets"),
        Arrow(0, 1, "preToolCall"),
        Arrow(1, 2, "the changed call"),
        Arrow(2, 0, "the call as it will run", dashed=True),
        Break("or end the chain: what follows is not asked, and the tool does not run"),
        Arrow(0, 1, "preToolCall"),
        Arrow(1, 0, "Deny", dashed=True),
        Break("wrappers go around: each calls proceed() and sees what comes back"),
        Arrow(0, 1, "aroundToolCall"),
        Arrow(1, 2, "proceed()"),
        Arrow(2, 3, "proceed()"),
        Arrow(3, 2, "result", dashed=True),
        Arrow(2, 1, "result", dashed=True),
        Arrow(1, 0, "result", dashed=True),
    ),
)

STREAM: Final = Sketch(
    "The way of a stream",
    (
        ("the model", 0),
        ("hooks", 150),
        ("the buffer: 64 events", 200),
        ("your reader", 210),
        ("the web server", 170),
        ("browsers", 210),
    ),
    (
        Arrow(0, 1, "a chunk"),
        Box(1, "onDelta"),
        Arrow(1, 2, "TextDelta, numbered"),
        Arrow(2, 3, "in order", dashed=True),
        Arrow(3, 4, "chat_response"),
        Arrow(4, 5, "a frame with its id"),
        Break("the buffer is full: the model waits for the reader, and no time limit runs"),
        Arrow(5, 4, "Last-Event-ID, after a reload"),
        Arrow(4, 5, "what it has missed, then live", dashed=True),
        Break("the reader leaves: the chat is aborted, and stop reaches model and tools"),
    ),
)

APPROVAL: Final = Sketch(
    "An approval across processes",
    (("browser", 0), ("process A", 190), ("store", 220), ("process B", 220)),
    (
        Arrow(0, 1, "“Refund order 7”"),
        Box(1, "preToolCall returns Ask"),
        Arrow(1, 2, "the call, sealed; the chat waits"),
        Arrow(1, 0, "ApprovalRequested, ChatDone", dashed=True),
        Ends(1, "process A may end; nothing is held in memory"),
        Arrow(0, 3, "Approve(), tomorrow"),
        Arrow(2, 3, "the call that waits", dashed=True),
        Arrow(3, 2, "the answer counts once"),
        Box(3, "the seal fits: the tool runs"),
        Arrow(3, 2, "its result"),
        Arrow(3, 0, "the rest of the answer", dashed=True),
    ),
)

LIVES: Final = Sketch(
    "The two lives of a durable chat",
    (("client", 0), ("worker A", 170), ("the log", 230), ("worker B", 230)),
    (
        Arrow(0, 1, "start, by id"),
        Arrow(1, 2, "step/0/model: the answer"),
        Arrow(1, 2, "step/0/call/…/run: begun"),
        Box(1, "the tool runs"),
        Ends(1, "worker A is killed"),
        Arrow(2, 3, "the chat has no worker", dashed=True),
        Arrow(2, 3, "recorded steps are given, not run", dashed=True),
        Box(3, "the tool had begun: it runs again only if it is idempotent"),
        Arrow(3, 2, "step/0/call/…/run: the result"),
        Arrow(3, 2, "step/1/model: the answer"),
        Arrow(3, 0, "one outcome", dashed=True),
    ),
)

MORE_STYLE: Final = """
.lane { stroke: #b8c0c8; stroke-dasharray: 3 4; }
.over { stroke: #b42318; stroke-width: 2; fill: none; }
.ended { fill: #b42318; font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
.seen { stroke-dasharray: 5 4; }
.band { fill: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  .lane { stroke: #4a535d; }
  .over { stroke: #ff7b72; }
  .ended { fill: #ff9d96; }
  .band { fill: #1d232b; }
}
"""


def svg(sketch: Sketch) -> str:
    """The picture."""
    places: list[float] = []
    for name, distance in sketch.actors:
        left = places[-1] + distance if places else 30 + _wide(name) / 2
        places.append(left)
    width = places[-1] + max(90.0, _wide(sketch.actors[-1][0]) / 2 + 30)
    for line in sketch.lines:
        if isinstance(line, (Box, Ends)):
            width = max(width, places[line.actor] + SMALL * len(line.said) / 2 + 2 * ASIDE)
        elif isinstance(line, Break):
            width = max(width, SMALL * len(line.said) + 4 * ASIDE)
    top = 62
    height = top + LANE * len(sketch.lines) + 24
    ends = {
        line.actor: top + LANE * place + LANE / 2
        for place, line in enumerate(sketch.lines)
        if isinstance(line, Ends)
    }
    out = ""
    for actor, x in enumerate(places):
        name, bottom = sketch.actors[actor][0], ends.get(actor, height - 14)
        out += f'<path class="lane" d="M{x:g} 46V{bottom:g}"/>\n'
        out += rect("observer", x - _wide(name) / 2, 18, _wide(name), 28, 8)
        out += text(x, 36.5, name, "note")
    for place, line in enumerate(sketch.lines):
        out += _draw(line, places, top + LANE * place + LANE / 2, width)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img">\n'
        f"<title>{sketch.title}</title>\n"
        "<!-- Generated from scripts/dev/sketches.py by scripts/dev/generate.py. Do not edit. -->\n"
        f"<style>{STYLE}{MORE_STYLE}</style>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="5" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>\n'
        f"{rect('paper', 0.5, 0.5, width - 1, height - 1, 8)}{out}</svg>\n"
    )


def _wide(name: str) -> float:
    return SMALL * len(name) + 2 * ASIDE


def _draw(line: Line, places: list[float], y: float, width: float) -> str:
    if isinstance(line, Break):
        band = f'<rect class="band" x="1" y="{y - 11:g}" width="{width - 2:g}" height="22"/>\n'
        return band + text(ASIDE, y + 4, line.said, "note", "start")
    if isinstance(line, Ends):
        x = places[line.actor]
        cross = f'<path class="over" d="M{x - 6:g} {y - 6:g}l12 12m0 -12l-12 12"/>\n'
        return cross + text(x + 14, y + 4, line.said, "ended", "start")
    if isinstance(line, Box):
        x, wide = places[line.actor], _wide(line.said)
        return rect(line.kind, x - wide / 2, y - 11, wide, 22, 6) + text(
            x, y + 4, line.said, "note"
        )
    start, end = places[line.start], places[line.end]
    gap = TIP if end > start else -TIP
    seen = " seen" if line.dashed else ""
    path = f'<path class="arrow{seen}" d="M{start:g} {y + 6:g}H{end - gap:g}"/>\n'
    return path + text((start + end) / 2, y, line.said, "note")


SKETCHES: Final = {"kinds": KINDS, "stream": STREAM, "approval": APPROVAL, "lives": LIVES}
