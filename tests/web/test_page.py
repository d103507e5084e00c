"""The chat page in Chromium: what a person does with it, by mouse and by keyboard."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import HTTPConnection
from tests.web._browser import page_of, serving, travel
from tests.web._scenes import HOSTILE, fails, weather
from tests.web._server import TOKEN, conversation_of, eventually
from tests.web.test_clients import _after
from tests.web.test_docs import names_of
from tests.web.test_site import Gate

from hookline import Agent, Ask
from hookline.points import PreToolCall
from hookline.testing import ScriptedModel, Turn, call

pytestmark = [pytest.mark.timeout(90), pytest.mark.asyncio(loop_scope="module")]
ATTACKS = (
    "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>",
    "<a href=\"javascript:document.title='owned'\">x</a><style>body{display:none}</style>",
    "</div></details><h1 id=forged>forged</h1>&lt;b&gt;",
    "${document.title='owned'}{{constructor.constructor('1')()}}\u202e\u0000" + HOSTILE,
)


async def test_a_chat_with_tools_an_approval_and_its_hooks(browser: Any) -> None:
    agent, booked = travel()
    async with serving(agent) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Take us from Oslo to Rome.")
        await page.sees("needs your approval")
        assert booked == []
        assert await page.page.evaluate("document.activeElement.id") == "say"
        reasoning = page.page.locator("details.reasoning")
        assert await reasoning.get_attribute("open") is None
        await reasoning.locator("summary").click()
        await page.sees("Two cities. I look at the weather")
        cards = page.page.locator("details.call")
        assert await cards.count() == 3
        await cards.nth(1).locator("summary").click()
        assert '"degrees": 21.5' in await cards.nth(1).inner_text()
        await cards.nth(0).locator("summary").click()
        assert "looking" in await cards.nth(0).inner_text()
        await page.page.get_by_role("button", name="Approve").click()
        await page.sees("Have a good journey!")
        await eventually(lambda: booked == ["EN 40295"])
        hooks = await page.text("#hooks")
        for shown in ("preToolCall", "ask before booking", "asked", "be brief", "changed"):
            assert shown in hooks, shown
        assert "onDelta ×" in hooks
        bars = await page.text("#waterfall")
        for shown in ("step 0", "slow", "weather", "step 1", "book", "run 2", "step 2"):
            assert shown in bars, shown
        assert "Take us from Oslo to Rome." in await page.text("#conversations")
        await page.say("Thanks!")
        await page.sees("You are welcome.")
        await page.assert_sound()


async def test_calls_of_a_step_are_grouped_by_their_server(browser: Any) -> None:
    mcp = pytest.importorskip("mcp.server")
    from hookline.mcp import MCPServer, connect

    def server(name: str) -> MCPServer:
        made = mcp.MCPServer(name)
        for tool in ("read", "list"):
            made.add_tool(lambda: "fine", name=tool)
        return MCPServer.local(made, prefix=f"{name}_")

    names = ("files_read", "bank_read", "weather", "files_list")
    calls = [call(name, city="Oslo") if name == "weather" else call(name) for name in names]
    model = ScriptedModel(calls, [call("files_read")], "Done.")
    agent = Agent(model, tools=[weather], parallel_tools=False)
    async with connect(agent, server("files"), server("bank")), serving(agent) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Go.")
        await page.sees("Done.")
        rows = page.page.locator("#waterfall .bar-name, #waterfall .server")
        assert await rows.all_inner_texts() == [
            *("step 0", "files", "files_read", "files_list", "bank", "bank_read", "weather"),
            *("step 1", "files", "files_read", "step 2"),
        ]
        await page.assert_sound()


async def test_text_grows_and_escape_stops_it(browser: Any) -> None:
    gate = Gate()
    words = [f"word{n} " for n in range(6)]
    agent = Agent(ScriptedModel(Turn(*words, delay=_after(gate, 4)), "Again."))
    async with serving(agent) as (site, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Talk.")
        await page.sees("word3")
        assert "word4" not in await page.text("#log")
        assert await page.page.locator("#stop").is_visible()
        await page.page.keyboard.press("Escape")
        await page.sees("Stopped by the user.")
        await eventually(lambda: len(site.runs) == 0)
        gate.open.set()
        await page.say("Once more.")
        await page.sees("Again.")
        await page.assert_sound()


async def test_a_reload_in_mid_stream_goes_on(browser: Any) -> None:
    gate = Gate()
    turns = (
        ["I look. ", call("weather", city="Oslo")],
        Turn("Sunny ", "in Oslo.", delay=_after(gate, 1)),
    )
    async with serving(Agent(ScriptedModel(*turns), tools=[weather])) as (site, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("How is Oslo?")
        await page.sees("Sunny")
        before = (await page.text("#log")).split()
        await page.page.reload()
        await page.sees("Sunny")
        assert (await page.text("#log")).split() == before
        gate.open.set()
        await page.sees("Sunny in Oslo.")
        assert (await page.text("#log")).count("I look.") == 1
        await eventually(lambda: len(site.runs) == 0)
        await page.page.reload()  # and from the stored messages
        await page.sees("Sunny in Oslo.")
        assert await page.page.locator("details.call").count() == 1
        await page.assert_sound()


async def test_a_lost_connection_is_read_on(browser: Any) -> None:
    gate = Gate()
    agent = Agent(ScriptedModel(Turn("One, ", "two.", delay=_after(gate, 1))))
    async with serving(agent) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Count.")
        await page.sees("One,")
        await page.page.evaluate("window.stop()")  # cuts the stream, not the page
        await page.sees("reconnecting")
        gate.open.set()
        await page.sees("One, two.")
        assert (await page.text("#log")).count("One, two.") == 1


async def test_an_approval_waits_for_a_page_that_is_loaded_again(browser: Any) -> None:
    agent, booked = travel()
    async with serving(agent) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say("Take us to Rome.")
        await page.sees("needs your approval")
        await page.page.reload()
        await page.sees("Book two seats")
        await page.page.get_by_role("button", name="Deny").click()
        await page.sees("Have a good journey!")
        assert booked == []
        assert "denied" in await page.page.locator("details.call").nth(2).inner_text()
        await page.assert_sound()


@pytest.mark.parametrize("attack", ATTACKS, ids=["script", "link", "markup", "template"])
async def test_no_text_is_read_as_html(browser: Any, attack: str) -> None:
    async def echo(text: str) -> dict[str, str]:
        """Echo."""
        return {text: text}

    echo_call = call("echo", text=attack)
    turn = Turn(reasoning=attack, text=attack, tool_calls=[echo_call, call("fails", city=attack)])
    agent = Agent(ScriptedModel(turn, attack), tools=[echo, fails])

    @agent.hook("preToolCall", tools=["echo"], name=attack)
    async def tell(ctx: PreToolCall) -> Ask:
        await ctx.run.status(attack, {attack: attack})
        return Ask(attack)

    async with serving(agent) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        await page.say(attack.replace("\n", " ").replace("\r", " "))
        await page.page.get_by_role("button", name="Approve").click()
        await page.page.locator(".badge.ok").wait_for()
        await page.page.reload()
        await page.page.locator(".badge.ok").wait_for()
        for summary in await page.page.locator("summary").all():
            await summary.click()
        assert "owned" not in await page.page.title()
        script = "[...document.querySelectorAll('#log *')].map((e) => e.localName)"
        found = set(await page.page.evaluate(script))
        assert found <= {
            *("div", "p", "details", "summary", "span", "pre", "button", "svg", "path", "input"),
        }
        assert await page.page.locator("#forged").count() == 0
        assert await page.page.locator("body").is_visible()
        shown = await page.page.evaluate("document.querySelector('#log').textContent")
        assert "document.title='owned'" in shown or "forged" in shown
        assert "\u202e" not in shown
        assert "hunter2" not in shown
        await page.assert_sound()


async def test_a_cookie_of_the_application_is_enough(browser: Any) -> None:
    who = names_of("sessions = {")["who"]  # as docs/frontends.md has it
    sent: list[str | None] = []

    def seen(connection: HTTPConnection) -> str | None:
        sent.append(connection.headers.get("authorization"))
        found: str | None = who(connection)
        return found

    async with serving(Agent(ScriptedModel("Hello, Ada.")), authorize=seen) as (site, url):
        page = await page_of(browser, url)
        cookie = {"name": "session", "value": "the secret of a session", "url": url}
        await page.page.context.add_cookies([cookie])
        await page.page.goto(url)
        await page.say("Hi.")
        await page.sees("Hello, Ada.")
        assert await page.page.locator("#ask-token").is_hidden()
        assert set(sent) == {None}
        assert (await conversation_of(site, await page.id(), "ada")).messages[0].text == "Hi."
        await page.assert_sound()


async def test_a_wrong_token_is_asked_for_again(browser: Any) -> None:
    async with serving(Agent(ScriptedModel("Hello."))) as (_, url):
        page = await page_of(browser, url)
        await page.page.goto(f"{url}/#token=wrong")
        await page.sees("This token is wrong.")
        await page.page.fill("#token", TOKEN)
        await page.page.keyboard.press("Enter")
        await page.page.locator("#ask-token").wait_for(state="hidden")
        await page.say("Hi.")
        await page.sees("Hello.")
        assert TOKEN not in page.page.url
        assert all(TOKEN not in asked for asked in page.asked)


async def test_everything_can_be_done_by_keyboard(browser: Any) -> None:
    agent, booked = travel()
    async with serving(agent) as (_, url):
        page = await page_of(browser, url)
        await page.open()
        keys = page.page.keyboard
        await keys.type("Take us")
        await keys.press("Shift+Enter")
        await keys.type("to Rome.")
        await keys.press("Enter")
        await page.sees("needs your approval")
        for _ in range(12):
            await keys.press("Shift+Tab")
            name = await page.page.evaluate("document.activeElement.textContent")
            ring = "getComputedStyle(document.activeElement).outlineStyle"
            assert await page.page.evaluate(ring) != "none", name
            if name == "Approve":
                break
        await keys.press("Enter")
        await page.sees("Have a good journey!")
        await eventually(lambda: booked == ["EN 40295"])


async def test_who_types_before_the_page_has_its_data_loses_nothing(browser: Any) -> None:
    """The server tells of the list and the past late; the message is kept and answered."""
    agent = Agent(ScriptedModel("First answer.", "Second answer."))
    async with serving(agent) as (_, url):
        page = await page_of(browser, url)
        held: list[Any] = []

        async def hold(route: Any) -> None:
            held.append(route)

        async def release() -> None:
            while held:
                await held.pop().continue_()

        await page.page.route("**/conversations", hold)
        await page.open()
        await page.say("First question.")
        await page.sees("First answer.")
        await release()
        await page.sees("First answer.")
        assert "First question." in await page.text("#log")

        await page.page.unroute("**/conversations")
        await page.page.route("**/messages", hold)
        await page.page.reload()
        await eventually(lambda: bool(held))
        await page.say("Second question.")
        assert await page.page.input_value("#say") == "Second question."
        await release()
        await page.sees("Second answer.")
        shown = await page.text("#log")
        order = ["First question.", "First answer.", "Second question.", "Second answer."]
        assert [shown.count(text) for text in order] == [1, 1, 1, 1]
        assert sorted(order, key=shown.index) == order
        page.assert_clean()


@pytest.mark.parametrize("width", [320, 390])
async def test_it_fits_a_phone(browser: Any, width: int) -> None:
    agent, _ = travel()
    async with serving(agent) as (_, url):
        page = await page_of(browser, url, viewport={"width": width, "height": 720}, has_touch=True)
        await page.open()
        await page.say("Take us from Oslo to Rome, and " + "x" * 200)
        await page.sees("needs your approval")
        over = "document.documentElement.scrollWidth - innerWidth"
        assert await page.page.evaluate(over) <= 0
        assert not await page.page.locator("#timeline").is_visible()
        await page.page.click("#show-timeline")
        assert await page.page.locator("#timeline").is_visible()
        assert await page.page.evaluate(over) <= 0
        await page.page.keyboard.press("Escape")
        await page.page.click("#show-list")
        assert await page.page.locator("#conversations").is_visible()
        await page.page.keyboard.press("Escape")
        small = """[...document.querySelectorAll('button, summary, textarea')]
            .filter((e) => e.offsetParent && e.getBoundingClientRect().height < 39)
            .map((e) => e.textContent)"""
        assert await page.page.evaluate(small) == []
        await page.assert_sound()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_text_has_enough_contrast(browser: Any, scheme: str) -> None:
    agent, _ = travel()
    async with serving(agent) as (_, url):
        page = await page_of(browser, url, color_scheme=scheme)
        await page.open()
        await page.say("Take us to Rome.")
        await page.sees("needs your approval")
        assert await page.page.evaluate(CONTRAST) == []


# Every element with a text of its own against the nearest ground behind it (WCAG AA: 4.5).
CONTRAST = """(() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const found = rgb(getComputedStyle(e).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !e.offsetParent || e.disabled) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) bad.push([e.className, e.textContent.slice(0, 20), ratio]);
  }
  return bad;
})()"""
