"""What an answer may contain, and how the page is looked at: a table of scenes in Chromium.

Each scene ends as `Page.assert_sound` says: the page complains of nothing, asks for nothing from
elsewhere, axe finds nothing serious, and what is shown is what is stored.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.web._browser import Page, page_of, serving
from tests.web._scenes import weather

from hookline import Agent, MemoryStore, tool
from hookline.hooks import approve
from hookline.testing import ScriptedModel, Turn, call

pytestmark = [pytest.mark.timeout(90), pytest.mark.asyncio(loop_scope="module")]

ARABIC = "هذه فقرة باللغة العربية"
# A text, and the elements that it becomes: a selector, and the texts of the elements that match.
CONTENTS: dict[str, tuple[str, dict[str, list[str]]]] = {
    "a table": (
        "| City | Day |\n|:-----|----:|\n| Oslo | 14° |\n| Rome | 27° |",
        {"th": ["City", "Day"], "td.right": ["14°", "27°"], "td.left": ["Oslo", "Rome"]},
    ),
    "a list of tasks": (
        "- [ ] pack *two* bags\n- [x] book\n- [no] task\n\n1. [X] first\n\n   More.",
        {
            ".task": ["☐", "☑", "☑"],
            "ul > li": ["☐ pack two bags", "☑ book", "[no] task"],
            "[aria-label='to do']": ["☐"],
        },
    ),
    "bare links": (
        "See https://example.org/a_b(c)?q=1, or (http://example.org). "
        "Not `https://example.org/code`, not ftp://example.org, not a@https://example.org.",
        {"a": ["https://example.org/a_b(c)?q=1", "http://example.org"]},
    ),
    "footnotes": (
        "Trains[^1] are slow[^slow], and `[^a-z]` and [^b] are no notes.\n\n"
        "[^1]: By *rail*, see https://example.org/rail\n[^slow]: Slower\nthan planes.",
        {
            "p:first-child sup": ["1", "slow"],
            ".footnote": ["1 By rail, see https://example.org/rail", "slow Slower\nthan planes."],
            "p:first-child > code": ["[^a-z]"],
        },
    ),
    "formulas": (
        "The sum $a_1 * b_1$ and:\n\n$$\n\\int_0^1 x_i * y_i\n$$",
        {".maths": ["$a_1 * b_1$", "$$\n\\int_0^1 x_i * y_i\n$$"], "em": []},
    ),
    "images": (
        "![a chart](https://example.org/chart.png) ![](data:image/png;base64,AAAA)",
        {"img": [], "a": ["🖼 a chart"]},
    ),
    "lists in lists": (
        "1. one\n   - two\n     - three\n\n> quoted\n>\n> - in it\n\n---\n\nend",
        {"ol ul ul > li": ["three"], "blockquote li": ["in it"], "hr": [""]},
    ),
    "struck and hard lines": ("~~no~~ yes  \nnext", {"s": ["no"], "p": ["no yesnext"]}),
    "a long word": ("x" * 3000 + "\n\nhttps://example.org/" + "y" * 3000, {"p > a": [None]}),
}


async def answered(browser: Any, url: str, **options: Any) -> Page:
    """A page on which one question was answered."""
    page = await page_of(browser, url, **options)
    await page.open()
    await page.say("Go.")
    await page.page.get_by_role("button", name="Regenerate").wait_for()
    return page


@pytest.mark.parametrize("name", CONTENTS)
async def test_a_kind_of_content(browser: Any, name: str) -> None:
    text, elements = CONTENTS[name]
    async with serving(Agent(ScriptedModel(Turn(text, chunk=7)))) as (_, url):
        page = await answered(browser, url)
        for selector, texts in elements.items():
            matches = page.page.locator(f".prose :is({selector})")
            if texts:
                await matches.nth(len(texts) - 1).wait_for()
            shown = await matches.all_text_contents()
            assert len(shown) == len(texts)
            for one, wanted in zip(shown, texts, strict=True):
                assert wanted in (None, one)
        over = "document.documentElement.scrollWidth - innerWidth"
        assert await page.page.evaluate(over) <= 0
        await page.assert_sound()


async def test_each_block_has_the_direction_of_its_own_text(browser: Any) -> None:
    lists = f"- one\n- {ARABIC}\n\n1. {ARABIC}\n2. two\n\n> {ARABIC}"
    text = f"English.\n\n{ARABIC}\n\n{lists}\n\n| a |\n|---|\n| {ARABIC} |"
    async with serving(Agent(ScriptedModel(Turn(text, chunk=5)))) as (_, url):
        page = await answered(browser, url)
        await page.page.locator(".prose td").wait_for()
        blocks = "[...document.querySelectorAll('.prose > :not(.table), .prose > * > p, td')]"
        directions = f"{blocks}.map((block) => getComputedStyle(block).direction)"
        assert await page.page.evaluate(directions) == [
            *("ltr", "rtl", "ltr", "rtl", "rtl", "rtl", "rtl")
        ]
        await page.assert_sound()


async def test_code_is_copied_as_it_is_stored(browser: Any) -> None:
    code = "def f():\n\treturn '<b>'  # \u00fc\n\n\nf()\n"
    async with serving(Agent(ScriptedModel(f"Run it:\n\n```python\n{code}```"))) as (_, url):
        page = await answered(browser, url, permissions=["clipboard-read", "clipboard-write"])
        await page.page.get_by_role("button", name="Copy the code").click()
        await page.page.locator("#said", has_text="Copied.").wait_for(state="attached")
        assert await page.page.evaluate("navigator.clipboard.readText()") == code
        await page.assert_sound()


# ── answers that are none ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("first", ["error", "empty"])
async def test_a_question_without_an_answer_can_be_asked_again(browser: Any, first: str) -> None:
    turn = RuntimeError("out of order") if first == "error" else Turn("")
    model = ScriptedModel(turn, "Here it is.")
    async with serving(Agent(model)) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Go.")
        retry = page.page.get_by_role("button", name="Try again")
        await retry.wait_for()
        note = await page.page.locator(".note").inner_text()
        assert ("no text" in note) == (first == "empty")
        await page.assert_sound()
        await page.sees(note.partition("\n")[0])  # after the reload, too
        await retry.click()
        await page.sees("Here it is.")
        assert (await page.text("#log")).count("Go.") == 1
        assert await retry.count() == 0
        assert len(model.requests) == 2
        await page.assert_sound()


async def test_only_the_last_error_offers_to_try_again(browser: Any) -> None:
    model = ScriptedModel(RuntimeError("out of order"), "Fine.")
    async with serving(Agent(model)) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Go.")
        await page.page.get_by_role("button", name="Try again").wait_for()
        await page.say("Another question.")
        await page.sees("Fine.")
        assert not await page.page.locator(".retry").is_visible()
        await page.assert_sound()
        await page.sees("Fine.")
        assert not await page.page.locator(".retry").is_visible()


@tool(client=True)
def pick_file(kind: str) -> str:
    """Let the user pick a file of this kind."""
    raise NotImplementedError


async def test_a_call_for_the_application_says_that_it_waits(browser: Any) -> None:
    agent = Agent(ScriptedModel(call("pick_file", kind="png")), tools=[pick_file])
    async with serving(agent) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Go.")
        for _ in range(2):
            await page.sees("waits for a result")
            await page.sees("This call runs in the application that you use")
            assert "kind: png" in (await page.page.locator("details.call").text_content() or "")
            assert await page.page.locator(".note").count() == 0
            await page.assert_sound()


async def test_the_end_is_in_view_whatever_changes_above_it(browser: Any) -> None:
    long = "A paragraph.\n\n" * 60
    turns = (long, RuntimeError("out of order"), call("pick_file", kind="png"))
    async with serving(Agent(ScriptedModel(*turns), tools=[pick_file])) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        for text, sign in ("Go.", "tokens in"), ("Again.", "Try again"), ("Pick.", "waits for"):
            await page.say(text)
            await page.sees(sign)
            await page.until(
                "(log => log.scrollHeight - log.scrollTop - log.clientHeight <= 1)"
                "(document.getElementById('log'))"
            )
        await page.page.mouse.move(600, 400)
        await page.page.mouse.wheel(0, -500)
        await page.page.locator("#latest").wait_for()  # the reader has left the end
        await page.assert_sound()


async def test_a_call_that_waits_for_an_approval_is_no_empty_answer(browser: Any) -> None:
    model = ScriptedModel(call("weather", city="Oslo"), "Sunny.")
    agent = Agent(model, tools=[weather], hooks=approve("weather"))
    async with serving(agent) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Go.")
        for _ in range(2):
            await page.sees("needs your approval")
            assert await page.page.locator(".note").count() == 0
            await page.assert_sound()
        await page.page.get_by_role("button", name="Approve").click()
        await page.sees("Sunny.")
        await page.assert_sound()


# ── how it is looked at ─────────────────────────────────────────────────────────────────────

EVERYTHING = "\n\n".join(text for name, (text, _) in CONTENTS.items()) + f"\n\n{ARABIC}\n"
VIEWS: dict[str, dict[str, Any]] = {
    "dark": {"color_scheme": "dark"},
    "320 px": {"viewport": {"width": 320, "height": 640}, "has_touch": True},
    "390 px": {"viewport": {"width": 390, "height": 780}, "has_touch": True},
    "390 px, dark": {"viewport": {"width": 390, "height": 780}, "color_scheme": "dark"},
    "zoomed to 200 %": {"viewport": {"width": 640, "height": 430}, "device_scale_factor": 2},
    "zoomed to 400 %": {"viewport": {"width": 320, "height": 215}, "device_scale_factor": 4},
    "forced colours": {"forced_colors": "active"},
    "less motion": {"reduced_motion": "reduce"},
}


@pytest.mark.parametrize("name", VIEWS)
async def test_a_view_of_everything(browser: Any, name: str) -> None:
    model = ScriptedModel([EVERYTHING, call("weather", city="Rome")], "Done.")
    agent = Agent(model, tools=[weather])
    async with serving(agent) as (_, url):
        page = await answered(browser, url, **VIEWS[name])
        await page.page.locator(".prose .footnote").first.wait_for(state="attached")
        over = "document.documentElement.scrollWidth - innerWidth"
        assert await page.page.evaluate(over) <= 0
        # What is wider than the page scrolls in itself.
        wide = """[...document.querySelectorAll('#log *')].filter((element) =>
            element.getBoundingClientRect().right > innerWidth + 1
            && !element.closest('.table, pre, .hidden')).map((element) => element.outerHTML)"""
        assert await page.page.evaluate(wide) == []
        assert await page.page.locator("#say").is_visible()
        await page.assert_sound()


async def test_a_printed_page_has_the_whole_conversation_and_nothing_else(browser: Any) -> None:
    store = MemoryStore()
    code = "x = 1\n" * 10 + f"# {'y' * 200}\n"
    turns = [f"Answer {n}.\n\n```python\n{code}```" for n in range(3)]
    agent = Agent(ScriptedModel(*turns), store=store)
    conversation = "owner/long"
    for n in range(3):
        await agent.chat(f"Question {n}?", conversation=conversation)
    async with serving(agent, store=store) as (_, url):
        page = await page_of(browser, url, color_scheme="dark")
        await page.open()
        await page.page.locator(".conversation").first.click()
        await page.sees("Answer 2.")
        await page.page.emulate_media(media="print")
        shown = await page.text("body")
        for n in range(3):
            assert f"Question {n}?" in shown
            assert f"Answer {n}." in shown
        for control in ("Send", "New chat", "Timeline", "Regenerate"):
            assert control not in shown
        log = "document.getElementById('log')"
        assert await page.page.evaluate(f"{log}.scrollHeight - {log}.clientHeight") <= 1
        ground = "getComputedStyle(document.querySelector('.said')).color"
        assert await page.page.evaluate(ground) == "rgb(23, 32, 31)"  # dark on light
        await page.page.emulate_media(media="screen")
        await page.assert_sound()
