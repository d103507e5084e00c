"""How many layers a tool call passes: calls and coroutines, which are counted and not timed."""

from tests.benchmarks.where import calls_of_a_unit, calls_ours

CALLS = 124
COROUTINES = 31


async def test_an_iteration_with_a_tool_passes_few_layers():
    """The model, the tool, the reader and asyncio are included."""
    calls, coroutines = await calls_of_a_unit(calls_ours, 20)
    assert calls <= CALLS
    assert coroutines <= COROUTINES
