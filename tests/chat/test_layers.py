"""What a chat passes through: calls, coroutines and bytecodes, which are counted and not timed."""

import sys
from collections.abc import Callable

import pytest
from tests.benchmarks.bytecodes import count
from tests.benchmarks.measure import Work
from tests.benchmarks.where import a_unit, calls_of_a_unit, calls_ours, text_ours

CALLS = 104
COROUTINES = 27
BYTECODES = 3_500
"""The most bytecodes of an iteration with a tool, in CPython 3.11; other versions have others."""
CHECK = 15
"""The most bytecodes of the check for messages that wait, in CPython 3.11 to 3.14."""
UNUSED = {
    "/_chat/steering.py": "steering",
    "/_chat/inbox.py": "steering",
    "/_model/prefix.py": "prefixes",
    "/hooks/": "hooks",
}
"""The modules of what a chat uses only if it is steered, measured or has ready-made hooks."""


async def unused_by(make: Callable[[int], Work], few: int) -> dict[str, float]:
    """The bytecodes that these modules execute for one unit of a chat that does not use them."""
    less, more = await count(make(few), UNUSED), await count(make(2 * few), UNUSED)
    return {name: (more[name] - less[name]) / few for name in UNUSED.values()}


async def test_an_iteration_with_a_tool_passes_few_layers():
    """The model, the tool, the reader and asyncio are included."""
    calls, coroutines = await calls_of_a_unit(calls_ours, 20)
    assert calls <= CALLS
    assert coroutines <= COROUTINES


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the bytecodes are those of Python 3.11")
async def test_an_iteration_with_a_tool_executes_few_bytecodes():
    assert sum((await a_unit(calls_ours, 20)).values()) <= BYTECODES


async def test_a_chunk_costs_nothing_of_what_its_chat_does_not_use():
    assert set((await unused_by(text_ours, 50)).values()) == {0}


async def test_an_iteration_costs_one_check_for_messages_of_what_its_chat_does_not_use():
    costs = await unused_by(calls_ours, 20)
    assert 0 < costs.pop("steering") <= CHECK
    assert set(costs.values()) == {0}
