"""The matrix: each kind of guard holds on each road to a tool, unless a reason is written down."""

import asyncio
from pathlib import Path

import pytest
from tests.guards.case import HELD, KINDS, NONE, RAN, ROADS, passage
from tests.guards.matrix import REASONS, matrix, promise, reason_at, table, with_section
from tests.guards.mutations import MUTATIONS, changed

pytestmark = pytest.mark.timeout(180)  # the matrix is run once, for all tests
DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def cells():
    return asyncio.run(matrix())


def test_there_are_many_roads_and_all_kinds_of_guards():
    assert len(ROADS) >= 90
    assert len(KINDS) >= 13


@pytest.mark.parametrize("road", ROADS)
async def test_without_a_guard_the_call_runs_on_the_road(road):
    assert await passage(NONE, road) == RAN


@pytest.mark.slow
@pytest.mark.parametrize("road", ROADS)
def test_each_guard_holds_on_the_road_or_has_a_reason(cells, road):
    passed = [kind for kind, result in cells[road].items() if result != HELD]
    assert [kind for kind in passed if reason_at(road, kind) is None] == []


def test_no_reason_is_left_over(cells):
    used = {
        reason_at(road, kind)
        for road, row in cells.items()
        for kind, result in row.items()
        if result == RAN
    }
    assert used == set(range(1, len(REASONS) + 1))


@pytest.mark.parametrize(("name", "section"), [("guards.md", table), ("security.md", promise)])
def test_the_section_of_the_docs_is_fresh(cells, name, section):
    """Run scripts/dev/guard-matrix --write."""
    page = (DOCS / name).read_text(encoding="utf-8")
    assert page == with_section(page, section(cells))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[each.name for each in MUTATIONS])
def test_the_place_of_each_change_is_there_once(mutation):
    """Whether a test notices the change: scripts/dev/mutate --guards."""
    assert changed(mutation)
