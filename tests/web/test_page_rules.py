"""Remembered approvals on the page: a person sees them, and revokes one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.web._browser import page_of, serving
from tests.web._server import TOKEN

from hookline import Agent, Approve, Ask, MemoryStore
from hookline.storage import Rule, list_rules
from hookline.testing import ScriptedModel, call
from hookline.web import conversation_key

pytestmark = [pytest.mark.timeout(90), pytest.mark.asyncio(loop_scope="module")]

TALK = conversation_key("owner", "c")
BAD = "ann\u202e <b>bold</b>"


def till(store: MemoryStore, *turns: Any) -> Agent[Any]:
    async def pay(to: str) -> str:
        """Pay."""
        return f"paid {to}"

    agent: Agent[Any] = Agent(ScriptedModel(*turns), name="till", tools=[pay], store=store)
    agent.add_hook("preToolCall", lambda ctx: Ask("Pay?"), guard=True)
    return agent


async def remembering(*scopes: Any) -> MemoryStore:
    """A store whose conversation has a remembered approval for each scope."""
    store = MemoryStore()
    for scope in scopes:
        agent = till(store, call("pay", to=f"{BAD} {scope}"), "done")
        (request,) = (await agent.chat("Pay.", conversation=TALK)).pending
        answer = Approve(by="lea", remember=Rule("pay", scope=scope))
        await agent.resume(TALK, {request.id: answer})
    return store


async def test_remembered_approvals_are_listed_and_revoked(browser: Any) -> None:
    store = await remembering("conversation", "always")
    async with serving(till(store, call("pay", to=f"{BAD} always"), "Paid."), store=store) as (
        _,
        url,
    ):
        page = await page_of(browser, url)
        await page.page.goto(f"{url}/#token={TOKEN}&c=c")
        await page.page.get_by_role("button", name="Remembered approvals").click()
        assert await page.page.evaluate("document.activeElement.id") == "rules-title"
        rows = page.page.locator("#rule-list li")
        await rows.nth(1).wait_for()
        first, second = [await rows.nth(n).inner_text() for n in (0, 1)]
        for text, where in ((first, "in this conversation"), (second, "in all conversations")):
            assert "pay of till" in text
            assert "ann\\u202e <b>bold</b>" in text
            assert f"{where}, approved by lea" in text
        await rows.nth(0).get_by_role("button", name="Revoke").click()
        await rows.nth(1).wait_for(state="detached")
        assert await list_rules(store, TALK) == ()
        assert await page.page.evaluate("document.activeElement.id") == "rules-title"
        await page.page.keyboard.press("Escape")
        await page.say("Pay again.")
        await page.sees("Paid.")  # by the rule for all conversations
        await page.page.get_by_role("button", name="Remembered approvals").click()
        await rows.nth(0).get_by_role("button", name="Revoke").click()
        await page.sees("No approval is remembered here.")
        assert await list_rules(store) == ()
        await page.page.keyboard.press("Escape")
        await page.page.locator("#show-rules").wait_for(state="hidden")
        await page.assert_sound()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_axe_finds_no_violation_in_the_remembered_approvals(
    browser: Any, scheme: str, width: int
) -> None:
    store = await remembering("conversation", "always")
    async with serving(till(store), store=store) as (_, url):
        viewport = {"width": width, "height": 800}
        page = await page_of(browser, url, color_scheme=scheme, viewport=viewport)
        await page.page.goto(f"{url}/#token={TOKEN}&c=c")
        if width == 390:
            await page.page.get_by_role("button", name="Conversations").click()
        await page.page.get_by_role("button", name="Remembered approvals").click()
        await page.sees("in all conversations")
        assert await page.page.evaluate("document.documentElement.scrollWidth") <= width
        assert await page.violations() == []
