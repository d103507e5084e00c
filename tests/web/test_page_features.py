"""What one does with the page besides talking: Markdown, files, forks, thumbs, the timeline."""

from __future__ import annotations

import asyncio
import json
import struct
import zlib
from typing import Any

import pytest
from tests.web._browser import page_of, serving, travel
from tests.web._scenes import fails, slow, weather
from tests.web._server import TOKEN, eventually
from tests.web.test_clients import _after
from tests.web.test_site import Gate

from hookline import Agent, Ask, Deny, File, Image, Text, define_hook
from hookline.points import PreToolCall
from hookline.testing import ScriptedModel, Turn, call
from hookline.web import OnFeedback, Page

pytestmark = [pytest.mark.timeout(90), pytest.mark.asyncio(loop_scope="module")]
INFO = Page(
    title="Travel desk",
    description="Finds trains.",
    starters=("Which train?",),
    details=True,
    price=lambda usage: usage.total_tokens * 2e-6,
)
MARKDOWN = """# Title

Some **bold** and [a link](https://example.org/x).

| a | b |
|---|--:|
| 1 | 2 |

- one
  - two

> quoted

```python
def f(): return "x"
```

A formula $a_1 * b_1 * c$ stays."""


def png(width: int = 4, height: int = 4) -> bytes:
    lines = [bytes((90, 120 + y * 100 // height, 190)) * width for y in range(height)]
    rows = b"".join(b"\0" + line for line in lines)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


# ── Markdown ────────────────────────────────────────────────────────────────────────────────


async def test_markdown_becomes_elements_while_it_streams_and_after_a_reload(browser: Any) -> None:
    gate = Gate()
    half = len(MARKDOWN) // 2
    turn = Turn(MARKDOWN[:half], MARKDOWN[half:], delay=_after(gate, 1))
    async with serving(Agent(ScriptedModel(turn))) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Tell me.")
        await page.page.locator(".prose table td.right").first.wait_for()  # in mid-stream
        assert await page.page.locator(".code").count() == 0
        gate.open.set()
        for _ in range(2):
            await page.page.locator(".code .k", has_text="def").wait_for()
            log = page.page.locator(".prose")
            assert await log.locator("h2").inner_text() == "Title"
            assert await log.locator("strong").inner_text() == "bold"
            link = log.locator("a")
            assert await link.get_attribute("href") == "https://example.org/x"
            assert await link.get_attribute("rel") == "noopener noreferrer nofollow"
            assert await log.locator("ul ul li").inner_text() == "two"
            assert await log.locator("blockquote").inner_text() == "quoted"
            assert await log.locator(".maths").inner_text() == "$a_1 * b_1 * c$"
            assert "**" not in await page.text("#log")
            await page.page.reload()
        await page.assert_sound()


HOSTILE = """[a](javascript:document.title='owned') [b](data:text/html;base64,AAAA)

<img src=x onerror=1>

![pixel](https://evil.example/pixel.png) <script>document.title='owned'</script>

[https://bank.example](https://evil.example/login) [c](vbscript:x) <a href="javascript:1">d</a>

[ref]: javascript:alert(1)

[ref] <style>body{display:none}</style>"""


async def test_code_that_grows_is_code_before_it_is_read(browser: Any) -> None:
    gate, read = Gate(), asyncio.Event()
    turn = Turn("- one\n\n```python\nx = 1\ny", " = 2", delay=_after(gate, 1), chunk=None)

    async def hold(route: Any) -> None:
        await read.wait()
        await route.continue_()

    async with serving(Agent(ScriptedModel(turn))) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Code, please.")
        await page.page.locator(".code .n").wait_for()
        await page.page.route("**/page/markdown", hold)
        gate.open.set()
        await page.sees("= 2")
        assert await page.page.locator(".code code").inner_text() == "x = 1\ny = 2"
        read.set()
        await page.page.locator(".code .n").nth(1).wait_for()
        await page.assert_sound()


DEFINED = """First a [link][1] and **bold**.

- an [item][1]

Second paragraph[^1].

[1]: https://example.org/x

[^1]: A footnote.

```text
code
```
"""


# Waits until the page has drawn all of a text.
DRAWN = """async ({ prose }) => {
  while (prose.busy || prose.whole || prose.parsed < prose.text.length) {
    await new Promise((done) => setTimeout(done, 5));
  }
}"""


@pytest.mark.parametrize("cut", range(20, len(DEFINED), 23))
async def test_an_answer_that_ends_while_it_is_read_is_shown_as_it_is_stored(
    browser: Any, cut: int
) -> None:
    from playwright.async_api import expect

    gate, read = Gate(), asyncio.Event()
    turn = Turn(DEFINED[:cut], DEFINED[cut:], delay=_after(gate, 1), chunk=None)

    async def hold(route: Any) -> None:
        await read.wait()
        await route.continue_()

    async with serving(Agent(ScriptedModel(turn))) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Define it.")
        await page.page.locator(".prose strong, .prose p").first.wait_for()
        await page.page.route("**/page/markdown", hold)
        async with page.page.expect_request("**/page/markdown"):
            gate.open.set()
        await page.page.locator("#send:not([hidden])").wait_for()
        read.set()
        await page.page.locator(".prose .code").wait_for()
        prose = page.page.locator(".prose")
        await prose.evaluate(DRAWN)  # a link may be there before all of its address is
        await expect(prose.locator("a")).to_have_count(2)
        shown = (await prose.inner_html()).strip()
        await page.page.reload()
        await page.page.locator(".prose .code").wait_for()
        assert shown == (await prose.inner_html()).strip()
        await page.assert_sound()


async def test_markdown_is_drawn_although_the_server_was_busy(browser: Any) -> None:
    statuses = iter([503, 503])

    async def answer(route: Any) -> None:
        status = next(statuses, None)
        await (route.continue_() if status is None else route.fulfill(status=status))

    async with serving(Agent(ScriptedModel("It is **so**."))) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.page.route("**/page/markdown", answer)
        await page.say("Go.")
        await page.page.locator(".prose strong").wait_for()
        assert next(statuses, None) is None


async def test_hostile_markdown_is_harmless(browser: Any) -> None:
    async with serving(Agent(ScriptedModel(Turn(HOSTILE, chunk=7)))) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Go.")
        await page.page.locator(".prose a").nth(1).wait_for()
        links = await page.page.locator(".prose a").evaluate_all("all => all.map((a) => a.href)")
        assert links == ["https://evil.example/pixel.png", "https://evil.example/login"]
        assert "(evil.example)" in await page.text(".prose")  # beside the name of another host
        assert await page.page.locator("#log img, #log script, #log style").count() == 0
        assert "owned" not in await page.page.title()
        await page.assert_sound()  # nothing was asked for elsewhere


async def test_what_would_not_be_seen_is_shown_beside_the_buttons(browser: Any) -> None:
    async def pay(to: str) -> str:
        """Pay."""
        return "paid"

    agent = Agent(ScriptedModel(call("pay", to="evil\u202emoc.knab\u200b"), "Done."), tools=[pay])

    @agent.hook("preToolCall")
    def ask(ctx: PreToolCall) -> Ask:
        return Ask(f"Pay {ctx.call.arguments['to']}?")

    async with serving(agent) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Pay.")
        await page.sees("needs your approval")
        assert "Pay evil\\u202emoc.knab\\u200b?" in await page.text(".question")
        assert "evil\\u202emoc.knab\\u200b" in await page.text(".call pre")
        for hidden in "\u202e\u200b":
            assert hidden not in await page.text("#log")
        await page.page.get_by_role("button", name="Edit", exact=True).click()
        value = await page.page.input_value(".json")
        assert json.loads(value) == {"to": "evil\u202emoc.knab\u200b"}
        assert "\u202e" not in value


# ── messages ────────────────────────────────────────────────────────────────────────────────


async def test_an_answer_is_made_again_and_a_question_forked(browser: Any) -> None:
    model = ScriptedModel("First.", "Second.", "Third.")
    async with serving(Agent(model)) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Question one?")
        await page.sees("First.")
        await page.page.get_by_role("button", name="Regenerate").click()
        await page.sees("Second.")
        log = await page.text("#log")
        assert "First." not in log
        assert log.count("Question one?") == 1
        await page.page.get_by_role("button", name="Edit in a new conversation").click()
        await page.page.fill(".edited", "Question two?")
        await page.page.keyboard.press("Enter")
        await page.sees("Third.")
        assert "Question one?" not in await page.text("#log")
        await page.page.locator(".conversation").nth(1).wait_for()
        titles = await page.page.locator(".conversation").all_inner_texts()
        assert titles == ["Question two?", "Question one?"]
        await page.assert_sound()


@pytest.mark.slow
async def test_a_message_that_is_typed_while_the_answer_runs_is_sent_into_it(browser: Any) -> None:
    gate = asyncio.Event()

    async def work() -> str:
        """Works."""
        await gate.wait()
        return "done"

    model = ScriptedModel(["I look. ", call("work")], "Here it is, brief.")
    async with serving(Agent(model, tools=[work])) as (_, url):
        page, other = await page_of(browser, url), await page_of(browser, url)
        await page.open()
        await page.say("Look.")
        await page.sees("I look.")
        await other.page.goto(page.page.url.replace("#", f"#token={TOKEN}&"))
        await page.say("Be brief.")
        await page.say("And kind.")
        for each in (page, other):
            await each.sees("Queued: Be brief.")
            await each.sees("Queued: And kind.")
            assert await each.page.locator("#log .user").all_inner_texts() == ["Look."]
        assert await page.page.input_value("#say") == ""
        gate.set()
        for each in (page, other):
            await each.sees("Here it is, brief.")
            assert not await each.page.locator("#queued").is_visible()
        for _ in range(2):
            shown = await page.text("#log")
            places = [
                shown.index(text)
                for text in ("Look.", "I look.", "work", "Be brief.", "And kind.", "Here it is")
            ]
            assert places == sorted(places)
            assert await page.page.locator("#log .user").count() == 3
            await page.page.reload()
            await page.sees("Here it is, brief.")
        await page.assert_sound()


async def test_a_message_that_an_answer_has_not_taken_is_given_back(browser: Any) -> None:
    async def work() -> str:
        """Works for ever."""
        await asyncio.Event().wait()
        return ""

    async with serving(Agent(ScriptedModel(call("work")), tools=[work])) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Look.")
        await page.page.locator(".badge", has_text="running").wait_for()
        await page.say("Be brief.")
        await page.say("And kind.")
        await page.sees("Queued: Be brief.")
        await page.sees("Queued: And kind.")
        await page.page.fill("#say", "Else.")
        await page.page.click("#stop")
        await page.sees("Not delivered: the chat ended before the message was delivered")
        assert await page.page.input_value("#say") == "Be brief.\nAnd kind.\nElse."
        assert not await page.page.locator("#queued").is_visible()
        page.assert_clean()


@pytest.mark.parametrize("receipt", ["first", "last"])
async def test_a_message_that_a_hook_refuses_is_given_back_with_the_reason(
    browser: Any, receipt: str
) -> None:
    """Also if the receipt of the message comes after the event that returns it."""
    gate, ended = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        """Works."""
        await gate.wait()
        return "done"

    agent = Agent(ScriptedModel(call("work"), "Here it is."), tools=[work])
    agent.add_hook("preSteer", lambda ctx: Deny("no shouting"))
    async with serving(agent) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Look.")
        await page.page.locator(".badge", has_text="running").wait_for()

        async def answer_last(route: Any) -> None:
            response = await route.fetch()
            await ended.wait()
            await route.fulfill(response=response)

        if receipt == "last":
            await page.page.route("**/messages", answer_last)
        await page.say("FASTER")
        await page.sees("Queued: FASTER")
        gate.set()
        await page.sees("Here it is.")
        ended.set()
        await page.until("document.querySelector('#say').value === 'FASTER'")
        hint = await page.page.locator("#hint").inner_text()
        assert hint == "Not delivered: no shouting"
        assert not await page.page.locator("#queued").is_visible()
        await page.assert_sound()


async def test_a_message_that_an_answer_does_not_take_is_sent_after_it(browser: Any) -> None:
    gate = asyncio.Event()

    async def deps(scope: Any, principal: str) -> None:
        await gate.wait()

    model = ScriptedModel("One.", "Next answer.")
    async with serving(Agent(model), deps=deps) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("First.")  # its chat has not begun
        await page.say("Second.")
        await page.sees("Will be sent after this answer: Second.")
        gate.set()
        await page.sees("Next answer.")
        assert not await page.page.locator("#queued").is_visible()
        assert [m.text for m in model.requests[1].messages] == ["First.", "One.", "Second."]


@pytest.mark.slow
async def test_files_go_with_a_message_and_are_shown(browser: Any) -> None:
    model = ScriptedModel("I see.")
    async with serving(Agent(model)) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        files = [
            {"name": "view.png", "mimeType": "image/png", "buffer": png()},
            {"name": "plan.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.4"},
            {"name": "gone.txt", "mimeType": "text/plain", "buffer": b"gone"},
        ]
        await page.page.set_input_files("#pick", files)
        await page.page.get_by_role("button", name="Remove gone.txt").click()
        await page.say("What is this?")
        await page.sees("I see.")
        parts = model.requests[0].messages[-1].parts
        assert parts == (
            Text("What is this?"),
            Image(media_type="image/png", data=png()),
            File(media_type="application/pdf", name="plan.pdf", data=b"%PDF-1.4"),
        )
        for _ in range(2):
            picture = page.page.locator("#log img.picture")
            await picture.wait_for()
            assert await picture.evaluate("(img) => img.naturalWidth") == 4
            assert "plan.pdf" in await page.text("#log .user")
            await page.page.reload()
        await page.assert_sound()


async def test_a_picture_is_pasted(browser: Any) -> None:
    async with serving(Agent(ScriptedModel("Nice."))) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        script = """(bytes) => {
          const data = new DataTransfer();
          data.items.add(new File([new Uint8Array(bytes)], 'shot.png', { type: 'image/png' }));
          const event = new ClipboardEvent('paste', { clipboardData: data, bubbles: true });
          document.getElementById('say').dispatchEvent(event);
        }"""
        await page.page.evaluate(script, list(png()))
        await page.page.locator("#files img").wait_for()
        await page.page.keyboard.press("Enter")
        await page.page.locator("#log img.picture").wait_for()
        await page.assert_sound()


async def test_a_thumb_reaches_a_hook_and_survives_a_reload(browser: Any) -> None:
    agent: Agent[Any] = Agent(ScriptedModel("Fine."))
    said: list[OnFeedback] = []
    agent.bus.add_hook(OnFeedback, said.append)
    async with serving(agent) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Hi.")
        up = page.page.get_by_role("button", name="Good answer")
        await up.click()
        await eventually(lambda: len(said) == 1)
        assert (said[0].principal, said[0].value) == ("owner", "up")
        await page.page.reload()
        await up.wait_for()
        assert await up.get_attribute("aria-pressed") == "true"
        await up.click()
        await eventually(lambda: len(said) == 2)
        assert said[1].value is None
        assert said[1].message_id == said[0].message_id


async def test_arguments_are_edited_and_a_denial_has_a_reason(browser: Any) -> None:
    agent, booked = travel()
    async with serving(agent) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Go.")
        await page.page.get_by_role("button", name="Edit", exact=True).click()
        await page.page.fill(".json", "[1]")
        await page.page.get_by_role("button", name="Approve changes").click()
        await page.sees("must be a JSON object")
        await page.page.fill(".json", '{"train": "IC 7", "seats": 1}')
        await page.page.get_by_role("button", name="Approve changes").click()
        await page.sees("Have a good journey!")
        assert booked == ["IC 7"]
        await page.assert_sound()
    agent, booked = travel()
    async with serving(agent) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Go.")
        await page.page.fill(".reason", "too dear")
        await page.page.get_by_role("button", name="Deny").click()
        await page.sees("Have a good journey!")
        assert booked == []
        await page.page.locator(".badge.denied").wait_for()
        assert "too dear" in await page.page.locator(".call").nth(2).inner_text()


async def test_the_empty_page_says_who_answers_and_what_to_ask(browser: Any) -> None:
    agent = Agent(ScriptedModel("The night train."), name="travel")
    async with serving(agent, page=INFO) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.sees("Travel desk")
        for shown in ("travel · scripted", "Finds trains."):
            assert shown in await page.text("#empty")
        await page.page.get_by_role("button", name="Which train?").click()
        await page.sees("The night train.")
        await page.assert_sound()


async def test_conversations_are_found_renamed_and_deleted(browser: Any) -> None:
    agent = Agent(ScriptedModel("About apples.", "About pears."))
    async with serving(agent) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        for question in ("First question", "Second question"):
            await page.page.click("#new")
            await page.say(question)
            await page.sees(f"About {'apples' if question[0] == 'F' else 'pears'}.")
        entries = page.page.locator(".conversation")
        await page.page.locator(".conversation", has_text="Second").wait_for()
        assert "Today" in await page.text("#conversations")
        await page.page.fill("#search", "apples")  # a word of an answer
        await page.page.locator(".conversation", has_text="Second").wait_for(state="detached")
        assert await entries.all_inner_texts() == ["First question"]
        await page.page.get_by_role("button", name="Rename First question").click()
        await page.page.fill("#ask-field", "Fruit")
        await page.page.keyboard.press("Enter")
        await page.page.locator(".conversation", has_text="Fruit").wait_for()
        await page.page.fill("#search", "")
        await page.page.locator(".conversation", has_text="Second").wait_for()
        await page.page.get_by_role("button", name="Delete Second question").click()
        await page.page.get_by_role("button", name="Delete", exact=True).click()
        await page.page.locator(".conversation", has_text="Second").wait_for(state="detached")
        assert await page.page.inner_text("#title") == "New chat"
        await page.page.reload()
        await page.page.locator(".conversation").wait_for()
        assert await entries.all_inner_texts() == ["Fruit"]
        await page.assert_sound()


@pytest.mark.parametrize("kind", ["Markdown", "JSON"])
async def test_a_conversation_is_saved_as_a_file(browser: Any, kind: str) -> None:
    turns = ([call("weather", city="Oslo")], "It is **sunny**.")
    async with serving(Agent(ScriptedModel(*turns), tools=[weather])) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("How is Oslo?")
        await page.sees("It is")
        await page.page.click("#export summary")
        async with page.page.expect_download() as download:
            await page.page.get_by_role("button", name=f"As {kind}").click()
        path = await (await download.value).path()
        text = path.read_text()
        if kind == "JSON":
            read = json.loads(text)
            assert [each["role"] for each in read["messages"]] == [
                *("user", "assistant", "tool", "assistant")
            ]
        else:
            for shown in ("# How is Oslo?", "## You", "**Calls weather**", "It is **sunny**."):
                assert shown in text


async def test_the_theme_is_chosen_and_kept(browser: Any) -> None:
    async with serving(Agent(ScriptedModel())) as (_, url):
        page = await page_of(browser, url, color_scheme="light")
        await page.open()
        ground = "getComputedStyle(document.body).backgroundColor"
        light = await page.page.evaluate(ground)
        await page.page.click("#theme")  # light
        assert await page.page.evaluate(ground) == light
        await page.page.click("#theme")  # dark
        dark = await page.page.evaluate(ground)
        assert dark != light
        await page.page.reload()
        assert await page.page.evaluate(ground) == dark


async def test_while_it_answers_the_text_is_as_dark_and_the_list_has_the_conversation(
    browser: Any,
) -> None:
    gate = Gate()
    agent = Agent(ScriptedModel(Turn("Half", " whole.", delay=_after(gate, 1))))
    async with serving(agent) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        ink = "getComputedStyle(document.querySelector('main')).color"
        before = await page.page.evaluate(ink)
        await page.say("What a day.")
        await page.sees("Half")
        await page.page.locator(".entry", has_text="What a day.").wait_for()
        assert await page.page.evaluate(ink) == before
        gate.open.set()
        await page.sees("whole.")
        await page.assert_sound()


# ── the timeline ────────────────────────────────────────────────────────────────────────────


async def test_the_timeline_errors_and_stops_survive_a_reload(browser: Any) -> None:
    gate = Gate()
    turns = (
        [call("weather", city="Oslo"), call("fails", city="Rome")],
        "Sunny.",
        Turn("Half", " whole", delay=_after(gate, 1)),
        RuntimeError("password=hunter2"),
    )
    async with serving(Agent(ScriptedModel(*turns), tools=[weather, fails])) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("One.")
        await page.sees("Sunny.")
        await page.say("Two.")
        await page.sees("Half")
        await page.page.keyboard.press("Escape")
        await page.sees("Stopped by the user.")
        await page.say("Three.")
        await page.sees("Something went wrong")
        script = "[...document.querySelectorAll('#waterfall .bar-name, #waterfall .run')]"
        rows = f"{script}.map((e) => e.textContent)"
        before = await page.page.evaluate(rows)
        assert before == [
            *("step 0", "weather", "fails", "step 1", "run 2", "step 0", "run 3", "step 0")
        ]
        ends = "[...document.querySelectorAll('#waterfall .bar-row')].map("
        ends += "(e) => e.classList.contains('error') ? 'error' : '')"
        ended = await page.page.evaluate(ends)
        assert ended == ["", "", "error", "", "", "error"]
        await page.page.reload()
        await page.sees("Something went wrong")
        assert await page.page.evaluate(ends) == ended
        log = await page.text("#log")
        order = ["Sunny.", "tokens in", "Half", "Stopped by the user.", "Something went wrong"]
        assert sorted(order, key=log.index) == order
        assert await page.page.evaluate(rows) == before
        assert "hunter2" not in await page.page.content()
        await page.assert_sound()


async def test_a_step_and_a_hook_explain_themselves(browser: Any) -> None:
    agent, _ = travel()

    @agent.hook("aroundRequest", name="slow wrapper")
    async def wrapped(ctx: Any, proceed: Any) -> Any:
        return await proceed(ctx.request.replace(system="Be kind."))

    async with serving(agent, page=INFO) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Take us to Rome.")
        await page.sees("needs your approval")
        for _ in range(2):
            await page.page.locator("#waterfall button").first.click()
            await page.page.locator("#waterfall .facts").wait_for()
            facts = await page.text("#waterfall .facts")
            for shown in ("scripted", "Tokens", "Cost", "$0.0000", "First token", "tool_calls"):
                assert shown in facts, shown
            for title in ("System", "Messages", "Tools", "Answer"):
                await page.page.locator("#waterfall .part summary", has_text=title).click()
            detail = await page.text("#waterfall .detail")
            for shown in ("Be kind.", "Take us to Rome.", "Book seats.", "→ slow("):
                assert shown in detail, shown
            brief = page.page.locator("#hooks button", has_text="be brief").first
            await brief.click()
            assert "Be brief." in await page.text("#hooks .detail .after")
            wrapper = page.page.locator("#hooks button", has_text="slow wrapper").first
            await wrapper.click()
            assert "Be brief." in await page.page.locator("#hooks .before").last.inner_text()
            assert await wrapper.locator(".took").get_attribute("title") is not None
            assert "no secrets" in await page.text("#hooks")
            await page.page.locator("#decisions").check()
            shown = await page.page.locator("#hooks .hook:visible").all_inner_texts()
            assert shown
            assert not any("no secrets" in each for each in shown)
            await page.page.locator("#decisions").uncheck()
            await page.page.reload()
            await page.sees("needs your approval")
        await page.assert_sound()


async def test_a_sub_agents_steps_stand_below_its_call_and_explain_themselves(
    browser: Any,
) -> None:
    inner = ScriptedModel(
        call("weather", city="Oslo"), "Snow.", call("weather", city="Rome"), "Sun."
    )
    child = Agent(inner, name="scout", system="You scout.", tools=[weather], parallel_tools=False)
    outer = ScriptedModel(
        [call("scout", input="Oslo?"), call("scout", input="Rome?"), call("slow", city="Bonn")],
        "Snow and sun.",
    )
    agent = Agent(outer, tools=[child.as_tool(), slow], parallel_tools=False)
    async with serving(agent, page=INFO) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("What is it like?")
        await page.sees("Snow and sun.")
        script = "[...document.querySelectorAll('#waterfall .bar-name')].map((e) => e.textContent)"
        scouted = ["scout", "step 0", "weather", "step 1"]
        rows = ["step 0", *scouted, *scouted, "slow", "step 1"]
        await page.sees("tokens in")
        assert await page.page.evaluate(script) == rows
        left = "[...document.querySelectorAll('#waterfall .bar-name')].map("
        left += "(e) => parseFloat(getComputedStyle(e).paddingLeft))"
        own, call_of_it, step_of_it, tool_of_it = (await page.page.evaluate(left))[:4]
        assert own < call_of_it <= step_of_it < tool_of_it
        for _ in range(2):
            step = page.page.locator("#waterfall button").nth(3)  # the first of the second scout
            await step.click()
            await page.page.locator("#waterfall .facts").wait_for()
            assert "First token" in await page.text("#waterfall .facts")
            assert "Tokens" in await page.text("#waterfall .facts")
            for title in ("System", "Messages", "Answer"):
                await page.page.locator("#waterfall .part summary", has_text=title).click()
            detail = await page.text("#waterfall .detail")
            for shown in ("You scout.", "Rome?", "→ weather("):
                assert shown in detail, shown
            await page.page.reload()
            await page.sees("tokens in")
            assert await page.page.evaluate(script) == rows
        await page.assert_sound()


async def test_a_call_and_the_timeline_name_the_hooks_that_decided_and_their_ids(
    browser: Any,
) -> None:
    agent, booked = travel()
    rule = define_hook(
        "preToolCall", lambda ctx: Deny("too dear"), name="a budget", id="house", tools=["book"]
    )
    await agent.use(rule)
    async with serving(agent, page=INFO) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Take us to Rome.")
        for _ in range(2):
            await page.sees("Have a good journey!")
            await page.page.locator(".badge.denied").click()
            call = page.page.locator(".call", has=page.page.locator(".badge.denied"))
            decided = call.get_by_text("Decided by")
            await decided.wait_for()
            assert await decided.locator("..").inner_text() == (
                "Decided by ask before booking, a budget (house)"
            )
            assert "a budget (house)" in await page.text("#hooks")
            await page.page.reload()
        assert booked == []
        await page.assert_sound()


async def test_without_details_the_server_tells_neither_requests_nor_changes(browser: Any) -> None:
    agent, _ = travel()
    async with serving(agent) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Take us to Rome.")
        await page.sees("needs your approval")
        await page.page.locator("#waterfall button").first.click()
        await page.sees("Requests are not recorded here")
        assert await page.page.locator("#hooks button").count() == 0


# ── for everybody ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_violation(browser: Any, scheme: str) -> None:
    turn = Turn(MARKDOWN, tool_calls=[call("weather", city="Oslo")])
    agent = Agent(ScriptedModel(turn, "Done."), tools=[weather])
    agent.add_hook("preToolCall", lambda ctx: Ask("May it?"))
    async with serving(agent, page=INFO) as (_, url):
        page = await page_of(browser, url, color_scheme=scheme)
        await page.open()
        await page.sees("Travel desk")
        found = [("empty", each) for each in await page.violations()]
        await page.page.set_input_files(
            "#pick", [{"name": "v.png", "mimeType": "image/png", "buffer": png()}]
        )
        await page.say("Go.")
        await page.sees("needs your approval")
        await page.page.locator(".code .k").first.wait_for()
        found += [("approval", each) for each in await page.violations()]
        await page.page.get_by_role("button", name="Edit", exact=True).click()
        await page.page.locator("#waterfall button").first.click()
        await page.page.locator("#waterfall .facts").wait_for()
        await page.page.click("#export summary")
        found += [("detail", each) for each in await page.violations()]
        await page.page.click("#export summary")
        await page.page.locator(".entry").hover()
        await page.page.get_by_role("button", name="Rename").click()
        found += [("dialog", each) for each in await page.violations()]
        assert found == []


async def test_two_thousand_messages_are_drawn_where_they_are_looked_at(browser: Any) -> None:
    from hookline import AssistantMessage, Conversation, MemoryStore, UserMessage

    messages: list[Any] = []
    for n in range(1000):
        messages.append(UserMessage(id=f"u{n}", parts=(Text(f"Question {n}"),)))
        messages.append(AssistantMessage(id=f"a{n}", parts=(Text(f"**Answer** {n}\n\n- x\n- y"),)))
    store = MemoryStore()
    await Conversation(messages, id="owner/long", meta={"title": "Long"}).save(store)
    async with serving(Agent(ScriptedModel("More.")), store=store) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.page.get_by_role("button", name="Long", exact=True).click()
        await page.sees("Answer 999")
        await page.page.locator(".prose strong").last.wait_for()
        drawn = await page.page.locator(".prose strong").count()
        assert drawn < 200  # of 1,000: the others are read when they come near
        await page.page.evaluate("document.getElementById('log').scrollTop = 0")
        first = page.page.locator(".prose").first
        await first.locator("strong").wait_for()
        assert await page.page.locator(".prose strong").count() < 400
        await page.say("One more.")
        await page.sees("More.")
        end = "(() => { const l = document.getElementById('log');"
        end += " return l.scrollHeight - l.scrollTop - l.clientHeight; })()"
        async with asyncio.timeout(60):
            while await page.page.evaluate(end) > 60:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        page.assert_clean()
