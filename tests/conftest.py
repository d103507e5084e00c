"""What all tests may use."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
from hypothesis import settings


@pytest.fixture
async def no_leaks() -> AsyncIterator[None]:
    """Fails the test that leaves a task behind."""
    yield
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks are left: {left}"


# A run that decides about a change must not depend on luck; at home the examples are random.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
