"""docs/images/phases.svg: the phases of a chat and what moves it, drawn from the table of moves."""

from __future__ import annotations

from html import escape

from hookline._chat.life import MOVES, Phase, Sign

BOX, GAP, HEIGHT, LINE = 96, 170, 40, 15
ROW = 112  # where the boxes begin
PHASES = list(Phase)

STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
.phase { fill: #1b1f24; font: 600 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.sign { fill: #57606a; }
.paper { fill: #ffffff; stroke: #d0d7de; }
.box { fill: #ddf0ff; stroke: #2f7dc0; }
.arrow { fill: none; stroke: #57606a; stroke-width: 1.4; marker-end: url(#tip); }
.tip { fill: #57606a; }
@media (prefers-color-scheme: dark) {
  .phase { fill: #e6edf3; }
  .sign { fill: #a5b0bb; }
  .paper { fill: #161b22; stroke: #30363d; }
  .box { fill: #12324d; stroke: #4a9ae0; }
  .arrow { stroke: #a5b0bb; }
  .tip { fill: #a5b0bb; }
}
"""


def edges() -> dict[tuple[Phase, Phase], list[Sign]]:
    """The signs that lead from one phase to another, in the order of the table."""
    found: dict[tuple[Phase, Phase], list[Sign]] = {}
    for (start, sign), to in MOVES.items():
        found.setdefault((start, to), []).append(sign)
    return found


def left(phase: Phase) -> int:
    return 24 + PHASES.index(phase) * (BOX + GAP)


def text(x: float, y: float, said: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="middle">{escape(said)}</text>\n'


def words(x: float, y: float, signs: list[Sign]) -> str:
    """The signs below each other; the last line is at `y`."""
    first = y - LINE * (len(signs) - 1)
    return "".join(text(x, first + LINE * at, each.value, "sign") for at, each in enumerate(signs))


def arrow(start: Phase, to: Phase, signs: list[Sign]) -> str:
    """Straight to the next phase; past others above the row, and to the end below it."""
    steps = PHASES.index(to) - PHASES.index(start)
    if steps == 1:
        x, y = left(start) + BOX, ROW + HEIGHT / 2
        path = f"M{x + 3} {y:g}H{left(to) - 7}"
        return f'<path class="arrow" d="{path}"/>\n' + words(x + GAP / 2, y - 8, signs)
    above = to is not PHASES[-1]
    edge = ROW if above else ROW + HEIGHT
    bend = -54 if above else 38 * (steps - 1) + 12
    x, end = left(start) + BOX * 0.6, left(to) + BOX * (0.4 if above else 0.9 - 0.2 * steps)
    turn, side = edge + bend, -1 if above else 1
    path = (
        f"M{x:g} {edge + 3 * side}V{turn - 10 * side:g}Q{x:g} {turn:g} {x + 10:g} {turn:g}"
        f"H{end - 10:g}Q{end:g} {turn:g} {end:g} {turn - 10 * side:g}V{edge + 7 * side}"
    )
    said = ", ".join(sign.value for sign in signs)
    return f'<path class="arrow" d="{path}"/>\n' + text((x + end) / 2, turn - 6, said, "sign")


def svg() -> str:
    width = left(PHASES[-1]) + BOX + 24
    height = ROW + HEIGHT + 38 * 3 + 40
    boxes = "".join(
        f'<rect class="box" x="{left(each)}" y="{ROW}" width="{BOX}" height="{HEIGHT}" rx="8"/>\n'
        + text(left(each) + BOX / 2, ROW + 25, each.name, "phase")
        for each in PHASES
    )
    arrows = "".join(arrow(start, to, signs) for (start, to), signs in edges().items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">\n'
        "<title>The phases of a chat</title>\n"
        "<!-- Generated from the table of moves by scripts/dev/generate.py. Do not edit. -->\n"
        f"<style>{STYLE}</style>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="5" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>\n'
        f'<rect class="paper" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>\n'
        f"{boxes}{arrows}</svg>\n"
    )
