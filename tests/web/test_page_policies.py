"""The policies on the page: who may tries one out on the own chats, and sees the verdicts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.web._browser import serving
from tests.web.test_page_inbox import as_user, user_of

from hookline import Agent, Ask, MemoryStore, define_hook
from hookline.points import PreToolCall
from hookline.testing import ScriptedModel, call

pytestmark = [pytest.mark.timeout(90), pytest.mark.asyncio(loop_scope="module")]


@define_hook("preToolCall", tools=["pay"])
def limit(ctx: PreToolCall) -> Ask | None:
    return Ask("over\u202e 50: <b>sure?</b>") if ctx.call.arguments["amount"] > 50 else None


def policies_of(principal: str) -> dict[str, list[Any]]:
    return {"refund limit": [limit]} if principal == "lea" else {}


def serve(paid: list[int]) -> Any:
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    model = ScriptedModel([call("pay", amount=20), call("pay", amount=80)], "Both are paid.")
    agent = Agent(model, tools=[pay], name="desk")
    options = {"token": None, "authorize": user_of, "store": MemoryStore()}
    return serving(agent, **options, policies=policies_of)


async def test_who_may_sees_what_a_policy_would_have_done(browser: Any) -> None:
    paid: list[int] = []
    async with serve(paid) as (_, url):
        ann = await as_user(browser, url, "ann")
        lea = await as_user(browser, url, "lea")
        await lea.say("Pay 20 and 80.")
        await lea.sees("Both are paid.")
        await lea.page.get_by_role("button", name="Policies").click()
        assert await lea.page.evaluate("document.activeElement.id") == "policies-title"
        assert await lea.page.locator("#log").is_hidden()
        await lea.page.get_by_role("button", name="Try it out").click()
        await lea.sees("Chats that would differ: 1 of 1 (asks 1)")
        row = await lea.page.locator("#report tbody tr").inner_text()
        cells = ["Pay 20 and 80.", "pay(amount=80)", "ok", "asks", "limit"]
        assert row.split("\t") == [*cells, "over\\u202e 50: <b>sure?</b>"]
        assert "1 of 1" in await lea.page.locator("#said").inner_text()
        assert paid == [20, 80]

        await lea.page.locator("#report a").click()
        assert await lea.page.locator("#policies").is_hidden()
        await lea.sees("Both are paid.")
        await lea.page.get_by_role("button", name="Policies").click()
        await lea.page.keyboard.press("Escape")
        assert await lea.page.locator("#policies").is_hidden()
        await lea.assert_sound()

        assert await ann.page.locator("#show-policies").is_hidden()
        await ann.assert_sound()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_axe_finds_no_violation_in_the_policies(
    browser: Any, scheme: str, width: int
) -> None:
    async with serve([]) as (_, url):
        options = {"color_scheme": scheme, "viewport": {"width": width, "height": 800}}
        lea = await as_user(browser, url, "lea", **options)
        await lea.say("Pay 20 and 80.")
        await lea.sees("Both are paid.")
        if width == 390:
            await lea.page.get_by_role("button", name="Conversations").click()
        await lea.page.get_by_role("button", name="Policies").click()
        await lea.page.get_by_role("button", name="Try it out").click()
        await lea.sees("asks 1")
        assert await lea.page.evaluate("document.documentElement.scrollWidth") <= width
        assert await lea.violations() == []
