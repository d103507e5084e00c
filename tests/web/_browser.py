"""The page in Chromium: what it complains of and asks for, and an agent to talk to."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

from tests.web._clients import JS, missing
from tests.web._scenes import slow, weather
from tests.web._server import TOKEN, site_of

from hookline import Agent, Ask, ModelRequest
from hookline.points import OnDelta, PreRequest, PreToolCall
from hookline.testing import ScriptedModel, Turn, call

AXE = JS / "node_modules" / "axe-core" / "axe.min.js"


def chromium_path() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    missing("there is no chromium: install it (Debian: chromium)")
    raise AssertionError


class Page:
    """A page of the browser, with what it has complained of and asked for."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.problems: list[str] = []
        self.asked: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("console", self._console)

    def _console(self, message: Any) -> None:
        if message.type == "error" and "401" not in message.text:
            self.problems.append(message.text)

    async def open(self) -> None:
        await self.page.goto(f"{self.url}/#token={TOKEN}")

    async def say(self, text: str) -> None:
        await self.page.fill("#say", text)
        await self.page.keyboard.press("Enter")

    async def sees(self, text: str) -> None:
        await self.page.get_by_text(text).first.wait_for(timeout=60_000)

    async def until(self, condition: str) -> None:
        """Wait until this expression of JavaScript is true.

        `wait_for_function` evaluates it in the page, whose policy forbids that.
        """
        async with asyncio.timeout(60):
            while not await self.page.evaluate(condition):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def id(self) -> str:
        """The id of the conversation on the page."""
        return str(await self.page.evaluate("new URLSearchParams(location.hash.slice(1)).get('c')"))

    async def text(self, selector: str) -> str:
        # The page leaves out what is not on the screen, which a browser decides with each frame.
        await self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        return str(await self.page.inner_text(selector))

    async def shown(self) -> list[str]:
        """The texts of the conversation, without calls, buttons and folded reasoning."""
        texts = "[...document.querySelectorAll(where)].map((each) => each.textContent)"
        return list(await self.page.evaluate(f"(where) => {texts}", "#log .prose:not(details *)"))

    async def assert_sound(self) -> None:
        """Nothing was complained of or asked for elsewhere, axe finds nothing serious, and the page
        shows what is stored: the same after a reload."""
        self.assert_clean()
        serious = await self.violations("serious", "critical")
        assert serious == [], serious
        before = await self.shown()
        await self.page.reload()
        async with asyncio.timeout(60):
            while await self.shown() != before:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        self.assert_clean()

    def assert_clean(self) -> None:
        assert self.problems == []
        ours = (self.url, "data:", f"blob:{self.url}")
        assert [url for url in self.asked if not url.startswith(ours)] == []

    async def violations(self, *impacts: str) -> list[tuple[str, str, str]]:
        """What axe finds, of these impacts or of any."""
        if not AXE.exists():
            missing("axe-core is not installed: scripts/dev/web-clients")
        if not await self.page.evaluate("'axe' in window"):
            await self.page.evaluate(AXE.read_text())
        report = await self.page.evaluate("axe.run({ resultTypes: ['violations'] })")
        return [
            (each["id"], node["html"][:160], node["failureSummary"][-200:])
            for each in report["violations"]
            for node in each["nodes"]
            if not impacts or each["impact"] in impacts
        ]


async def page_of(browser: Any, url: str, **options: Any) -> Page:
    context = await browser.new_context(**{"viewport": {"width": 1280, "height": 860}, **options})
    return Page(await context.new_page(), url)


def serving(agent: Agent[Any], **options: Any) -> Any:
    return site_of(agent, **{"page": True, "on_disconnect": "detach", **options})


def travel() -> tuple[Agent[Any], list[str]]:
    """An agent with something of everything, and what it has booked."""
    booked: list[str] = []

    async def book(train: str, seats: int) -> str:
        """Book seats."""
        booked.append(train)
        return f"booked {seats} seats on {train}"

    first = Turn(
        reasoning="Two cities. I look at the weather in both, then I book.",
        text="Let me look at the weather first. ",
        tool_calls=[call("slow", city="Oslo"), call("weather", city="Rome")],
        chunk=4,
    )
    second = Turn(
        text="Both are sunny.", tool_calls=[call("book", train="EN 40295", seats=2)], chunk=4
    )
    third = Turn(text="Done: two seats on EN 40295. Have a good journey!", chunk=4)
    model = ScriptedModel(first, second, third, "You are welcome.")
    agent = Agent(model, tools=[weather, slow, book], name="travel")

    @agent.hook("preToolCall", tools=["book"], name="ask before booking")
    def ask(ctx: PreToolCall) -> Ask:
        return Ask("Book two seats on EN 40295 for 118 €?")

    @agent.hook("preRequest", name="be brief")
    def brief(ctx: PreRequest) -> ModelRequest:
        return ctx.request.replace(system="Be brief.")

    @agent.hook("onDelta", name="no secrets")
    async def watch(ctx: OnDelta) -> None:
        await asyncio.sleep(0.002)

    return agent, booked
