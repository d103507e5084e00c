"""One Chromium for each module of tests that looks at the page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from tests.web._browser import chromium_path
from tests.web._clients import missing

# This takes the place of Playwright's own list, so it begins with that. The last three are
# processes that Chromium makes ready for each window, and that no test looks at.
WITHOUT = (
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades"),
    *("HttpsFirstBalancedModeAutoEnable", "LensOverlay", "MediaRouter", "PaintHolding"),
    *("ThirdPartyStoragePartitioning", "AvoidCorsURLLoaderRestartOnRedirect", "OptimizationHints"),
    *("NetworkTimeServiceQuerying", "AimEnabled", "PreconnectToSearch", "Translate"),
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "SpareRendererForSitePerProcess"),
)
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", f"--disable-features={','.join(WITHOUT)}"]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Any]:
    path = chromium_path()
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        missing("playwright is not installed")
        raise
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            await browser.close()
