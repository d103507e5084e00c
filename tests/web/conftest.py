"""One Chromium for each module of tests that looks at the page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from tests.web._browser import chromium_path
from tests.web._clients import missing


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Any]:
    path = chromium_path()
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        missing("playwright is not installed")
        raise
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            await browser.close()
