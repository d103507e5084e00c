"""Events: those that the garbage collector skips can be part of no cycle."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest
from msgspec.structs import fields

from hookline import Usage, events

PLAIN = (str, int, float, type(None), Usage)
SKIPPED = [
    kind
    for kind in vars(events).values()
    if isinstance(kind, type)
    and issubclass(kind, events.ChatEvent)
    and not kind.__struct_config__.gc
]


def types_in(hint: object) -> set[object]:
    """The types of the values that a field may hold, also inside a tuple."""
    arguments = [part for part in get_args(hint) if part is not Ellipsis]
    if not arguments:
        return {hint if isinstance(hint, type) else type(hint)}  # a Literal's values are plain
    return set().union(*map(types_in, arguments))


def test_some_events_are_skipped() -> None:
    assert events.TextDelta in SKIPPED
    assert events.MessageAdded not in SKIPPED


@pytest.mark.parametrize("kind", [*SKIPPED, Usage])
def test_what_the_collector_skips_holds_only_plain_values(kind: type) -> None:
    hints = get_type_hints(kind)
    assert set().union(*(types_in(hints[field.name]) for field in fields(kind))) <= set(PLAIN)
