"""Pictures for docs/web.md: written there with HOOKLINE_SCREENSHOTS=1, else only made."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.web._browser import page_of, serving, travel
from tests.web._scenes import slow, weather
from tests.web.test_page_features import png

from hookline import Agent, ModelRequest
from hookline.points import PreRequest
from hookline.testing import ScriptedModel, Turn, call
from hookline.web import Page
from hookline.workspace import Workspace

pytestmark = [pytest.mark.timeout(90), pytest.mark.asyncio(loop_scope="module")]
DOCS = Path(__file__).parents[2] / "docs" / "images"
PHONE = {"viewport": {"width": 390, "height": 780}, "has_touch": True}
INFO = Page(title="Travel desk", details=True, price=lambda usage: usage.total_tokens * 4e-6)
ANSWER = """## Oslo and Rome

Oslo is **cool and dry**, Rome *warm*. The train takes two nights; see
[the timetable](https://www.example.org/trains).

| City | Day | Night |
|:-----|----:|------:|
| Oslo | 14° | 6° |
| Rome | 27° | 18° |

1. Pack a coat for Oslo
   - and a scarf
2. Sunglasses for Rome

> Book before Friday: prices go up after that.

```python
def nights(route: list[str]) -> int:
    # how many nights a route takes
    return sum(1 for leg in route if leg.startswith("EN"))
```
"""


PRICES = """VAT = 0.19


def gross(net: float) -> float:
    return net + net * VAT
"""
TEST = """from prices import gross


def test_a_price_has_two_decimals():
    assert gross(9.99) == 11.89
"""


@pytest.mark.parametrize(
    "name",
    [
        *("web-light", "web-dark", "web-phone", "web-markdown", "web-timeline"),
        *("web-attachments", "web-workspace"),
    ],
)
async def test_a_picture(browser: Any, tmp_path: Path, name: str) -> None:
    folder = DOCS if os.environ.get("HOOKLINE_SCREENSHOTS") else tmp_path
    scheme = "dark" if name in ("web-dark", "web-markdown") else "light"
    options = {"color_scheme": scheme, **(PHONE if name == "web-phone" else {})}
    agent, _ = travel()
    if name == "web-markdown":
        agent = Agent(ScriptedModel(Turn(ANSWER, chunk=9)), name="travel")
    if name == "web-timeline":
        agent = scouting()
    if name == "web-workspace":
        agent = coding(tmp_path)
    info = INFO if name != "web-workspace" else Page(title="Coder")
    async with serving(agent, page=info) as (_, url):
        page = await page_of(browser, url, **options)
        await page.open()
        await page.sees(info.title)
        await SHOWN[name](page)
        await page.page.screenshot(path=folder / f"{name}.png")
        await page.assert_sound()
    assert (folder / f"{name}.png").stat().st_size > 10_000


async def approval(page: Any) -> None:
    await page.say("Take the two of us from Oslo to Rome.")
    await page.sees("needs your approval")


async def answered(page: Any) -> None:
    await approval(page)
    await page.page.get_by_role("button", name="Approve").click()
    await page.sees("Have a good journey!")


async def markdown(page: Any) -> None:
    await page.say("What are Oslo and Rome like?")
    await page.page.locator(".code .k").first.wait_for()
    await page.page.get_by_role("button", name="Regenerate").wait_for()


def scouting() -> Agent[Any]:
    """An agent that asks another one."""
    looks = Turn("I ask the station. ", call("slow", city="Oslo"), delay=moment)
    told = Turn("Oslo is sunny: 21 degrees.", delay=moment)
    scout = Agent(ScriptedModel(looks, told), name="scout", system="You scout.", tools=[slow])
    calls = [call("scout", input="What is Oslo like today?"), call("weather", city="Rome")]
    first = Turn("I ask the scout about Oslo, and look up Rome. ", *calls, delay=moment, chunk=9)
    last = Turn("Both are **sunny**: 21 degrees in Oslo, 21.5 in Rome.", delay=moment, chunk=9)
    agent = Agent(ScriptedModel(first, last), name="travel", tools=[scout.as_tool(), weather])

    @agent.hook("preRequest", name="be brief")
    def brief(ctx: PreRequest) -> ModelRequest:
        return ctx.request.replace(system="Be brief.")

    return agent


async def moment() -> None:
    await asyncio.sleep(0.02)


async def timeline(page: Any) -> None:
    await page.say("What is the weather in Oslo and Rome?")
    await page.sees("tokens in")
    await page.page.locator("#waterfall button").nth(1).click()
    await page.page.locator("#waterfall .part summary", has_text="Messages").click()
    await page.page.locator("#decisions").check()
    await page.page.locator("#hooks button").first.click()
    await page.page.evaluate("document.getElementById('timeline').scrollTop = 0")


async def attachments(page: Any) -> None:
    picture = {"name": "view.png", "mimeType": "image/png", "buffer": png(160, 100)}
    plan = {"name": "plan.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.4" * 900}
    await page.page.set_input_files("#pick", [picture, plan])
    await page.say("Take us where this picture was taken.")
    await page.sees("needs your approval")
    await page.page.set_input_files("#pick", [picture])
    await page.page.fill("#say", "And this one?")
    await page.page.evaluate("document.getElementById('log').scrollTop = 0")


def coding(folder: Path) -> Agent[Any]:
    """An agent that mends a function, and asks before each change."""
    (folder / "project").mkdir()
    (folder / "project" / "prices.py").write_text(PRICES)
    steps = ("Read the function", "Round to cents", "Add a test")

    def plan(*statuses: str) -> Any:
        items = [{"text": t, "status": s} for t, s in zip(steps, statuses, strict=True)]
        return call("plan", items=items)

    change = {"old": "return net + net * VAT", "new": "return round(net + net * VAT, 2)"}
    model = ScriptedModel(
        Turn(plan("active", "open", "open"), call("read", path="prices.py")),
        Turn("The price is never rounded.", call("edit", path="prices.py", edits=[change])),
        Turn("Now the test.", plan("done", "done", "active")),
        Turn(call("write", path="tests/test_prices.py", text=TEST)),
    )
    workspace = Workspace(folder / "project", state=folder / "state")
    return Agent(model, plugins=[workspace], name="coder")


async def workspace(page: Any) -> None:
    await page.say("Prices have too many decimals. Mend it, with a test.")
    await page.page.get_by_role("button", name="Approve").click()
    await page.sees("Create tests/test_prices.py?")
    await page.page.locator("#changed summary").click()
    await page.page.locator("#log").evaluate("log => { log.scrollTop = log.scrollHeight; }")


SHOWN = {
    "web-workspace": workspace,
    "web-light": approval,
    "web-dark": answered,
    "web-phone": approval,
    "web-markdown": markdown,
    "web-timeline": timeline,
    "web-attachments": attachments,
}
