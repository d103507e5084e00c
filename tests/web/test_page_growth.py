"""How the page grows: what is the same stays, whatever the size, and no text is lost at any cut."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from tests.web._browser import page_of, serving

from hookline import Agent
from hookline.testing import ScriptedModel, Turn

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]

CODE = "".join(f"    total += work('step {n}', {n})  # one of many lines\n" for n in range(1500))
PARAGRAPH = "Some **words** and `code`, then [a link](https://example.org/x) and more of them. " * 6
SCENES = {
    "code": f"Look:\n\n```python\n{CODE}```\n\nThat is all.",
    "prose": f"{PARAGRAPH}\n\n" * 110 + "That is all.",
    "list": "".join(f"- item **{n}** with `code` and a few words\n" for n in range(800))
    + "\nThat is all.",
}

# Counts the nodes that come into the conversation, the frames, and how often the view moves.
WATCH = """() => {
  const log = document.getElementById('log');
  window.seen = { nodes: 0, frames: 0, moves: 0 };
  const size = (node) => [...node.childNodes].reduce((sum, child) => sum + size(child), 1);
  new MutationObserver((changes) => {
    for (const { addedNodes } of changes) for (const node of addedNodes) seen.nodes += size(node);
  }).observe(log, { childList: true, subtree: true });
  const { get, set } = Object.getOwnPropertyDescriptor(Element.prototype, 'scrollTop');
  Object.defineProperty(log, 'scrollTop', {
    get() { return get.call(log); },
    set(value) { seen.moves += 1; set.call(log, value); },
  });
  (function frame() { seen.frames += 1; requestAnimationFrame(frame); })();
  seen.total = () => size(log);
}"""


@pytest.mark.parametrize("name", SCENES)
async def test_a_long_answer_is_drawn_once(browser: Any, name: str) -> None:
    text = SCENES[name]
    async with serving(Agent(ScriptedModel(Turn(text, chunk=25)))) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.page.evaluate(WATCH)
        await page.say("Go.")
        await page.page.get_by_role("button", name="Regenerate").wait_for(timeout=90_000)
        await page.page.locator(".prose > p", has_text="That is all.").wait_for()
        nodes, total = await page.page.evaluate("[seen.nodes, seen.total()]")
        assert nodes < 3 * total, (nodes, total)
        moves, frames = await page.page.evaluate("[seen.moves, seen.frames]")
        assert moves <= frames + 1
        if name == "code":
            assert await page.page.locator(".lines").count() == 38  # 1,500 lines, 40 in each
            assert await page.page.locator(".prose code").text_content() == CODE
        page.assert_clean()


# ── every cut ───────────────────────────────────────────────────────────────────────────────

PIECES = (
    "A [link][1], a [second] and a note[^n] in *one* **line** with `a [code][1]`.",
    "> A quote with [a link][1].\n>\n> [second]: https://example.org/in-a-quote",
    "- an [item][second]\n\n  [1]: https://example.org/in-a-list\n- two\n  - three [1]",
    "1. one\n\n   > [^n]: In a quote in a list.\n2. two",
    "[1]: https://example.org/plain 'A title'\n[^n]: A note with *words*.",
    "```python\ndef f(): return '[1]: x'\n\n[second]: no\n```",
    "| a | b |\n|---|--:|\n| [1] | `2` |\n| 3 | [second] |",
    "Heading\n=======\n\n## Another [1]",
    "$$\na_1 * b [1]: x\n$$",
    "    code by its indent\n\n    [1]: no definition",
    "***\n\nA line  \nbroken, and <b>no HTML</b> \u202e hidden.",
    "- [ ] open [1]\n- [x] done\n\nhttps://example.org/bare?q=[1]",
)

INNER = """See [a] and [b][c].

Again [a].

> A quote.
>
> [a]: https://example.org/a

1. An item

   > - [c]: https://example.org/c

End [c]."""


def mixed(seed: int) -> str:
    return "\n\n".join([*Random(seed).sample(PIECES, 5), PIECES[0]])


# Every cut, in three ways: read to the cut before the rest comes; the end comes while the beginning
# is read; everything comes at once. The shown text is the same as that of the whole text.
CUTS = """async (text) => {
  const { Prose } = await import('./markdown.js');
  const log = document.getElementById('log');
  const soon = () => new Promise((done) => setTimeout(done, 2));
  const settled = async (prose) => {
    while (prose.busy || prose.whole || prose.parsed < prose.text.length) await soon();
    return prose.element.innerHTML;
  };
  const grown = async (cut, way) => {
    const prose = new Prose();
    log.append(prose.element);
    prose.append(text.slice(0, cut));
    if (way === 0) while (prose.parsed < cut) await soon();
    if (way === 1) await soon();
    prose.append(text.slice(cut));
    prose.finish();
    const html = await settled(prose);
    prose.element.remove();
    return html;
  };
  const whole = new Prose();
  whole.set(text);
  log.append(whole.element);
  whole.refresh();
  const wanted = await settled(whole);
  whole.element.remove();
  const cuts = [...Array(text.length).keys()].slice(1);
  const shown = await Promise.all(cuts.map((cut) => grown(cut, cut % 3)));
  const wrong = cuts.filter((cut) => shown[cut - 1] !== wanted);
  return [wanted, wrong.map((cut) => [cut, shown[cut - 1]])];
}"""


@pytest.mark.parametrize("text", [INNER, *map(mixed, range(5))], ids=["inner", *"01234"])
async def test_no_cut_of_a_text_loses_any_of_it(browser: Any, text: str) -> None:
    held: list[asyncio.Event] = []

    async def hold(route: Any) -> None:  # answers go out in pairs, the later one first
        mine = asyncio.Event()
        held.append(mine)
        if len(held) % 2:
            try:
                async with asyncio.timeout(0.05):
                    await mine.wait()
            except TimeoutError:
                pass
        else:
            held[-2].set()
        await route.continue_()

    async with serving(Agent(ScriptedModel("Hello."))) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.page.locator("#empty").wait_for()
        await page.page.route("**/page/markdown", hold)
        wanted, wrong = await page.page.evaluate(CUTS, text)
        assert "<p " in wanted
        assert wrong == [], f"{len(wrong)} of {len(text)} cuts differ from {wanted}"
        page.assert_clean()


# The text grows while its beginning is read, and each answer takes longer than the next piece.
READS = """async (pieces) => {
  const { Prose } = await import('./markdown.js');
  const log = document.getElementById('log');
  const soon = () => new Promise((done) => setTimeout(done, 2));
  const { fetch } = window;
  let open = 0;
  let most = 0;
  window.fetch = async (...request) => {
    most = Math.max(most, open += 1);
    const answer = await fetch(...request);
    for (let wait = 0; wait < 10; wait += 1) await soon();
    open -= 1;
    return answer;
  };
  const prose = new Prose();
  log.append(prose.element);
  for (const piece of pieces) {
    prose.append(piece);
    await soon();
  }
  prose.finish();
  while (open || prose.parsed < prose.text.length) await soon();
  return [most, [...prose.element.children].map((block) => block.textContent)];
}"""


async def test_a_growing_text_is_read_once_at_a_time(browser: Any) -> None:
    """An older answer that comes after a newer one would show a part of the text twice."""
    async with serving(Agent(ScriptedModel("Hello."))) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.page.locator("#empty").wait_for()
        pieces = [f"Paragraph {number}." for number in range(40)]
        assert await page.page.evaluate(READS, [f"{each}\n\n" for each in pieces]) == [1, pieces]
        page.assert_clean()
