"""How the page holds up under long answers: tasks of the browser, and memory.

Each answer of `test_page_growth` is streamed several times into one page, each into a conversation
of its own. Prints how many tasks of the browser's main thread took more than 50 ms, the longest,
and what JavaScript and the document hold after each answer.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from playwright.async_api import async_playwright
from tests.web._browser import Page, chromium_path, page_of, serving
from tests.web.test_page_growth import SCENES

from hookline import Agent
from hookline.testing import ScriptedModel, Turn

WATCH = """() => {
  window.tasks = [];
  new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) tasks.push(duration);
  }).observe({ type: 'longtask' });
}"""


async def stream(page: Page, session: Any) -> str:
    """Stream one answer into a new conversation, and return its figures."""
    await page.page.get_by_role("button", name="New chat").click()
    await page.page.evaluate("tasks.length = 0")
    await page.say("Go.")
    await page.page.get_by_role("button", name="Regenerate").wait_for(timeout=600_000)
    await page.page.locator(".prose > p", has_text="That is all.").wait_for(timeout=600_000)
    tasks: list[float] = await page.page.evaluate("tasks")
    await session.send("HeapProfiler.collectGarbage")
    metrics = (await session.send("Performance.getMetrics"))["metrics"]
    values = {metric["name"]: metric["value"] for metric in metrics}
    return (
        f"{len(tasks):3} long tasks, longest {max(tasks, default=0):4.0f} ms; "
        f"{values['JSHeapUsedSize'] / 2**20:5.1f} MiB of JavaScript, {values['Nodes']:6.0f} nodes"
    )


async def measure(times: int) -> None:
    """Print the figures of each answer."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium_path(), args=["--no-sandbox"]
        )
        for name, text in SCENES.items():
            turns = [Turn(text, chunk=25) for _ in range(times)]
            async with serving(Agent(ScriptedModel(*turns))) as (_, url):
                page = await page_of(browser, url)
                await page.open()
                await page.page.evaluate(WATCH)
                session = await page.page.context.new_cdp_session(page.page)
                await session.send("Performance.enable")
                for time in range(times):
                    print(f"{name:6} {time + 1}: {await stream(page, session)}", flush=True)
                page.assert_clean()
        await browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3)
    asyncio.run(measure(parser.parse_args().times))


if __name__ == "__main__":
    main()
