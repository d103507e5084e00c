"""The front ends of docs/frontends.md in Chromium, with each version of their clients."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.web._browser import Page
from tests.web._frontends import PAGES, Door, built
from tests.web._server import eventually, serve
from tests.web.test_clients import _after
from tests.web.test_docs import names_of
from tests.web.test_site import Gate

from hookline import Agent, Ask, ToolMessage, tool
from hookline.points import PreToolCall
from hookline.testing import ScriptedModel, Turn, call
from hookline.web import Caps, Site, app

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]
SECRET = "the secret of a session"
OTHER = ("book {", "Approve", "Deny")
EACH = pytest.mark.parametrize("name", [page for page in PAGES if "tools" not in page])
# What the AI SDK's own code decides, and no framework: one framework for all of its versions.
EACH_CLIENT = pytest.mark.parametrize(
    "name", ["react-5", "react-6", "react-7", "vue-7", "svelte-7", "ag-ui", "fetch"]
)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def door() -> AsyncIterator[Door]:
    door = Door()
    async with serve(door, lifespan="off") as target, built(target) as door.pages:
        yield door


def booking(*turns: Any) -> tuple[Agent[Any], list[str]]:
    """An agent that asks before it books, and what it has booked."""
    booked: list[str] = []

    async def book(train: str) -> str:
        """Book a seat."""
        booked.append(train)
        return f"a seat on {train}"

    agent = Agent(ScriptedModel(*turns), tools=[book])

    @agent.hook("preToolCall", tools=["book"])
    def ask(ctx: PreToolCall) -> Ask:
        return Ask(f"Book {ctx.call.arguments['train']}?")

    return agent, booked


class Front(Page):
    """A page of docs/frontends.md, as a person uses it."""

    async def write(self, text: str) -> None:
        await self.page.get_by_label("Message").fill(text)
        await self.press("Send")

    async def press(self, button: str) -> None:
        await self.page.get_by_role("button", name=button, exact=True).click(timeout=60_000)

    async def idle(self) -> None:
        await self.page.get_by_role("button", name="Send", exact=True).wait_for(timeout=60_000)

    async def said(self) -> str:
        """What was said, without the calls and their buttons."""
        said = await self.page.locator("section.user, section.assistant").all_inner_texts()
        lines = [line.strip() for line in "\n".join(said).split("\n")]
        return " ".join(line for line in lines if line and not line.startswith(OTHER))


@asynccontextmanager
async def opened(
    browser: Any,
    door: Door,
    name: str,
    agent: Agent[Any],
    *,
    cookie: bool = False,
    **options: Any,
) -> AsyncIterator[tuple[Front, Site]]:
    """The page with its agent behind it, for somebody who has signed in."""
    site = app(
        agent,
        authorize=names_of("sessions = {")["who"],
        on_disconnect="detach",
        ai_sdk_version=5 if name.endswith("-5") else 7 if name.endswith("-7") else 6,
        caps=Caps(drain=0.0),
        **options,
    )
    door.behind = Starlette(routes=[Mount("/agent", site)])
    context = await browser.new_context(viewport={"width": 640, "height": 900})
    if cookie:
        url = door.pages
        await context.add_cookies([{"name": "session", "value": SECRET, "url": url}])
    else:
        await context.add_init_script(f"sessionStorage.setItem('token', {SECRET!r})")
    page = Front(await context.new_page(), door.pages)
    await page.page.goto(f"{door.pages}/{name}/index.html")
    try:
        yield page, site
    finally:
        await context.close()
        await site.shutdown(0)


@EACH
async def test_a_conversation(browser: Any, door: Door, name: str) -> None:
    streams, booked_one, endless = Gate(), Gate(), Gate()
    agent, booked = booking(
        Turn("Let me ", "look.", call("book", train="EN 40295"), delay=_after(streams, 1)),
        Turn("It is ", "booked.", delay=_after(booked_one, 1)),
        Turn("And ", "now? ", call("book", train="ICE\u202e 9")),
        "As you wish.",
        Turn("word0 ", "word1 ", "word2 ", delay=_after(endless, 2)),
        "Fine.",
    )
    async with opened(browser, door, name, agent) as (page, site):
        await page.idle()
        assert await page.page.get_by_role("alert").count() == 0
        address = page.page.url
        assert re.search(r"\?chat=[0-9a-f-]{36}$", address)

        await page.write("To Rome.")
        await page.sees("Let me")
        assert "look" not in await page.said()
        streams.open.set()
        await page.press("Approve")
        await page.sees("It is")
        assert booked == ["EN 40295"]
        assert "booked." not in await page.said()
        await page.page.reload()  # while the call's answer goes on
        await page.sees("It is")
        assert await page.said() == "To Rome. Let me look. It is"
        booked_one.open.set()
        await page.idle()
        assert await page.said() == "To Rome. Let me look. It is booked."

        await page.write("To Bonn.")
        await page.page.get_by_role("button", name="Deny").wait_for(timeout=60_000)
        await page.page.reload()  # while it waits
        await page.sees("ICE\\u{202e} 9")
        assert "\u202e" not in await page.text("main")
        await page.press("Deny")
        await page.sees("As you wish.")
        assert booked == ["EN 40295"]

        await page.idle()
        await page.write("Talk.")
        await page.sees("word1")
        await page.page.reload()  # while it streams
        await page.sees("word1")
        await page.press("Stop")
        await page.idle()
        await eventually(lambda: len(site.runs) == 0)
        endless.open.set()

        await page.write("Thanks.")
        await page.sees("Fine.")
        await page.idle()
        whole = (
            "To Rome. Let me look. It is booked. To Bonn. And now? As you wish. "
            "Talk. word0 word1 Thanks. Fine."
        )
        assert await page.said() == whole
        await page.page.reload()
        await page.sees("Fine.")
        assert await page.said() == whole
        assert page.page.url == address
        assert page.problems == []


@pytest.mark.parametrize("name", ["react-6", "react-7", "vue-7", "svelte-7"])
async def test_a_question_is_shown_with_its_details(browser: Any, door: Door, name: str) -> None:
    agent, _ = booking(call("book", train="EN 40295"), "It is booked.")
    details = {"seat": "window\u202e"}
    agent.add_hook("preToolCall", lambda ctx: Ask("Sure?", details=details), priority=1)
    async with opened(browser, door, name, agent) as (page, _):
        await page.write("To Rome.")
        for _ in range(2):
            await page.sees("Sure? seat: window\\u{202e} Book EN 40295?")
            await page.page.reload()


@pytest.mark.parametrize("name", ["react-5", "react-6", "react-7", "vue-7", "svelte-7"])
async def test_a_page_waits_for_the_decision_of_somebody_else(
    browser: Any, door: Door, name: str
) -> None:
    agent, booked = booking(call("book", train="EN 40295"), "It is booked.")
    approvers = lambda principal, request, asker: True  # noqa: E731
    async with opened(browser, door, name, agent, approvers=approvers) as (page, site):
        await page.write("To Rome.")
        await page.sees("EN 40295")
        await page.idle()
        assert await page.page.get_by_role("button", name="Approve").count() == 0
        (request,) = await site._config.store.pending()
        body = {"id": request.id, "approved": True}
        headers = {"Authorization": f"Bearer {SECRET}"}
        answer = await page.page.context.request.post(
            f"{door.pages}/agent/approvals", data=body, headers=headers
        )
        assert answer.status == 202
        await eventually(lambda: booked == ["EN 40295"])
        if name == "react-5":  # the file for this version does not ask again
            await page.page.reload()
        await page.sees("It is booked.")
        assert page.problems == []


@EACH_CLIENT
async def test_an_answer_that_ends_while_the_page_loads(
    browser: Any, door: Door, name: str
) -> None:
    gate = Gate()
    agent, _ = booking(Turn("One, ", "two.", delay=_after(gate, 1)), "Again.")
    async with opened(browser, door, name, agent, cookie=True) as (page, site):
        await page.write("Count.")
        await page.sees("One,")

        async def hold(route: Any) -> None:
            """The messages say that an answer runs, and arrive when it is over."""
            response = await route.fetch()
            gate.open.set()
            await eventually(lambda: len(site.runs) == 0)
            await route.fulfill(response=response)

        await page.page.route("**/ai-sdk/*/messages", hold, times=1)
        await page.page.route("**/ag-ui/*/messages", hold, times=1)
        if name == "fetch":
            await page.page.route("**/native/*/messages", hold, times=1)
        await page.page.reload()
        await page.sees("One, two.")
        await page.idle()
        assert await page.said() == "Count. One, two."
        await page.write("And?")
        await page.sees("Again.")
        assert page.problems == []


@EACH_CLIENT
async def test_a_refusal_is_shown_in_its_words(browser: Any, door: Door, name: str) -> None:
    gate = Gate()
    agent, _ = booking(Turn("One, ", "two.", delay=_after(gate, 1)))
    async with opened(browser, door, name, agent) as (page, _):
        await page.idle()
        second = await page.page.context.new_page()  # the same conversation in another tab
        await second.goto(page.page.url)
        other = Front(second, door.pages)
        await other.idle()
        await page.write("Count.")
        await page.sees("One,")
        await other.write("Count again.")
        await other.sees("busy with another answer")
        gate.open.set()
        await page.sees("One, two.")
        await page.page.evaluate("sessionStorage.setItem('token', 'another')")
        await page.idle()
        await page.write("And?")
        await page.sees("You are not signed in or not allowed to do this")
        await page.page.context.add_init_script("sessionStorage.clear()")
        await page.page.reload()
        await page.sees("You are not signed in or not allowed to do this")


@pytest.mark.parametrize("name", [page for page in PAGES if "tools" in page])
async def test_a_tool_runs_in_the_browser(browser: Any, door: Door, name: str) -> None:
    @tool(client=True)
    def time_zone() -> str:
        """The user's time zone."""
        raise AssertionError

    model = ScriptedModel([call("time_zone")], "So it is late.")
    async with opened(browser, door, name, Agent(model, tools=[time_zone])) as (page, _):
        await page.write("Is it late?")
        await page.sees("So it is late.")
        zone = await page.page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone")
        (result,) = [m for m in model.requests[-1].messages if isinstance(m, ToolMessage)]
        assert result.text == zone
        assert page.problems == []
