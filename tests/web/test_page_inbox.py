"""The inbox on the page: an approver decides about the calls of others, and they see who did."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.web._browser import Page, page_of, serving

from hookline import Agent, ApprovalRequest, Ask, MemoryStore
from hookline.points import PreToolCall
from hookline.testing import ScriptedModel, call

pytestmark = [pytest.mark.timeout(90), pytest.mark.asyncio(loop_scope="module")]

DIFF = "--- a/desk.py\n+++ b/desk.py\n@@ -1 +1 @@\n-LIMIT = 10\n+LIMIT = 10\u202e0\n"


def desk() -> tuple[Agent[Any], list[str]]:
    paid: list[str] = []

    async def pay(to: str, amount: int) -> str:
        """Pay."""
        paid.append(to)
        return f"paid {to}"

    model = ScriptedModel(call("pay", to="Ada", amount=80), "You have it.")
    agent = Agent(model, tools=[pay], name="desk")

    @agent.hook("preToolCall")
    def ask(ctx: PreToolCall) -> Ask:
        details = {"kind": "diff", "path": "desk.py", "text": DIFF}
        return Ask(f"Pay {ctx.call.arguments['amount']} euros?", details=details)

    return agent, paid


def user_of(request: Any) -> str | None:
    name: str | None = request.headers.get("x-user")
    return name


def may(principal: str, request: ApprovalRequest, asker: str) -> bool:
    return principal == "lea"


def serve_desk(agent: Agent[Any], **options: Any) -> Any:
    settings = {
        "token": None,
        "authorize": user_of,
        "timeline": True,
        "approvers": may,
        "store": MemoryStore(),
    }
    return serving(agent, **settings, **options)


async def as_user(browser: Any, url: str, name: str, at: str = "/", **options: Any) -> Page:
    page = await page_of(browser, url, extra_http_headers={"x-user": name}, **options)
    await page.page.goto(f"{url}{at}")
    return page


@pytest.mark.parametrize("approved", [True, False], ids=["approved", "denied"])
async def test_an_approver_decides_and_the_asker_sees_it(browser: Any, approved: bool) -> None:
    agent, paid = desk()
    async with serve_desk(agent) as (_, url):
        ann = await as_user(browser, url, "ann")
        await ann.say("Pay Ada.")
        await ann.sees("waiting for approval")
        await ann.sees("Somebody else decides.")
        assert await ann.page.locator(".question button").count() == 0
        assert await ann.page.locator("#show-inbox").is_hidden()

        lea = await as_user(browser, url, "lea")
        await lea.page.get_by_role("button", name="Approvals: 1 waiting").click()
        shown = await lea.text("#inbox")
        for part in ("ann asks, just now", "pay", "Ada", "Pay 80 euros?", "path: desk.py"):
            assert part in shown
        assert "+LIMIT = 10\\u202e0" in await lea.text("#inbox .diff")
        assert await lea.page.locator("#inbox .diff .i").count() == 1  # not the line `+++`

        # By keyboard: from the title on to the note, and to the button.
        note = lea.page.get_by_placeholder("Reason (optional)")
        await note.focus()
        await lea.page.keyboard.type("as agreed")
        await lea.page.keyboard.press("Enter")  # decides nothing
        assert await note.is_enabled()
        await lea.page.keyboard.press("Shift+Tab" if approved else "Tab")
        if approved:
            await lea.page.keyboard.press("Shift+Tab")  # over Edit
        await lea.page.keyboard.press("Enter")
        word = "approved" if approved else "denied"
        await lea.page.locator("#inbox .badge", has_text=word).wait_for()
        await lea.sees("Nothing waits for your approval.")
        assert "0 left" in await lea.page.locator("#said").inner_text()
        assert await lea.page.evaluate("document.activeElement.id") == "inbox-title"
        await lea.page.keyboard.press("Escape")
        assert await lea.page.locator("#inbox").is_hidden()

        await ann.sees("You have it.")
        for _ in range(2):
            by = await ann.text(".call .by")
            assert by == ("approved by lea: as agreed" if approved else "denied by lea")
            await ann.page.reload()
            await ann.sees("You have it.")
        assert paid == (["Ada"] if approved else [])
        await ann.assert_sound()
        await lea.assert_sound()


async def test_a_question_that_somebody_else_answered_says_so(browser: Any) -> None:
    agent, paid = desk()
    async with serve_desk(agent) as (_, url):
        ann = await as_user(browser, url, "ann")
        await ann.say("Pay Ada.")
        await ann.sees("waiting for approval")
        one = await as_user(browser, url, "lea", "/#approvals")
        two = await as_user(browser, url, "lea", "/#approvals")
        for page in (one, two):
            await page.sees("Pay 80 euros?")
        await one.page.get_by_role("button", name="Approve", exact=True).click()
        await ann.sees("You have it.")
        await two.page.get_by_role("button", name="Deny", exact=True).click()
        await two.sees("This approval is not waiting for an answer")
        await two.sees("Nothing waits for your approval.")
        assert paid == ["Ada"]


async def test_edited_arguments_run(browser: Any) -> None:
    agent, paid = desk()
    async with serve_desk(agent) as (_, url):
        ann = await as_user(browser, url, "ann")
        await ann.say("Pay Ada.")
        await ann.sees("waiting for approval")
        lea = await as_user(browser, url, "lea", "/#approvals")
        await lea.page.get_by_role("button", name="Edit", exact=True).click()
        await lea.page.fill(".json", '{"to": "Bob", "amount": 8}')
        await lea.page.get_by_role("button", name="Approve changes").click()
        await ann.sees("You have it.")
        assert paid == ["Bob"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_axe_finds_no_violation_in_the_inbox(browser: Any, scheme: str, width: int) -> None:
    agent, _ = desk()
    async with serve_desk(agent) as (_, url):
        ann = await as_user(browser, url, "ann", color_scheme=scheme)
        await ann.say("Pay Ada.")
        await ann.sees("Somebody else decides.")
        options = {"color_scheme": scheme, "viewport": {"width": width, "height": 800}}
        lea = await as_user(browser, url, "lea", "/#approvals", **options)
        await lea.sees("Pay 80 euros?")
        assert await lea.page.evaluate("document.documentElement.scrollWidth") <= width
        assert await lea.violations() == []
        assert await ann.violations() == []
        await lea.page.get_by_role("button", name="Approve", exact=True).click()
        await lea.sees("Nothing waits for your approval.")
        async with asyncio.timeout(60):
            await ann.sees("approved by lea")
        assert await lea.violations() == []
        assert await ann.violations() == []
