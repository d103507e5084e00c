"""The spans of an iteration are those that a program would write by hand."""

from tests.benchmarks.w6_tracing import check_same


async def test_the_spans_and_metrics_are_those_of_a_loop_with_the_bare_sdk() -> None:
    await check_same()
