"""The engines, each made ready once for the process that tests it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests._postgres import NAMED
from tests.durable._engines import Engine, Missing, places

from hookline.durable import Client

REQUIRED = {
    "postgres": NAMED is not None,
    "restate": os.environ.get("HOOKLINE_RESTATE") == "required",
}


@pytest.fixture(scope="session")
def _places() -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        found: dict[str, Any] = {}

        def place(name: str) -> Any:
            if name not in found:
                found[name] = stack.enter_context(places((name,)))[name]
            return found[name]

        yield place  # type: ignore[misc]


def engine_at(place: Any, name: str) -> Engine:
    """The engine of this name, or a skip; a failure where it is required."""
    where = place(name)
    if isinstance(where, Missing):
        if REQUIRED.get(name, False):
            pytest.fail(f"{name} is required and missing: {where}")
        pytest.skip(f"{name}: {where}")
    return Engine(name, where)


@pytest.fixture(params=["sqlite", "postgres", "restate"])
def engine(request: pytest.FixtureRequest, _places: Any) -> Engine:
    return engine_at(_places, request.param)


@pytest.fixture
def postgres(_places: Any) -> Engine:
    return engine_at(_places, "postgres")


@pytest.fixture(params=["postgres", "restate"])
def server(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine whose server is our own, and may be killed."""
    with places((request.param,), own=True) as found:
        yield engine_at(found.__getitem__, request.param)


@pytest.fixture
async def client(engine: Engine) -> AsyncIterator[Client]:
    async with engine.client() as made:
        yield made
