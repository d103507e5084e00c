"""mutants: answers of providers, broken in many ways, through the four adapters and their SDKs.

Cut, doubled, reordered, with unknown events, garbage, flipped bytes and other values, split at any
byte. Each ends with an answer or an error of hookline's tree, and leaves a valid history. The
transport is in memory; tests/_mutants.py makes the mutants, `scripts/dev/fuzz-models` runs them
alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
import warnings
from collections import Counter
from collections.abc import Iterator

from tests._mutants import Fuzz
from tests._wires import WIRES

from hookline.errors import HistoryError

from .figures import Budget, Figure, Findings, tries

NAME = "mutants"
TITLE = "mutated answers of providers, through the four adapters"
WEIGHT = 12

OUTSIDE = "errors outside of hookline's tree"
HISTORIES = "histories that no provider would take"
BATCH = 20


async def batch(chats: Fuzz, numbers: range, findings: Findings) -> Counter[str]:
    """What came of these mutants."""
    tally: Counter[str] = Counter()
    for number in numbers:
        where = f"{chats.kind}, mutant {number}"
        try:
            tally[await chats.once(number)] += 1
        except (HistoryError, AssertionError) as exc:
            findings.note(HISTORIES, 1, f"{where}: {exc!r}")
        except Exception as exc:
            findings.note(OUTSIDE, 1, f"{where}: {exc!r}")
    return tally


async def _all_in_turn(budget: Budget, findings: Findings) -> dict[str, Counter[str]]:
    """Batches of each adapter in turn, for as long as there is time."""
    chats = [Fuzz(kind) for kind in WIRES]
    came: dict[str, Counter[str]] = {each.kind: Counter() for each in chats}
    number = budget.seed * 1_000
    longest = 0.0
    while True:
        begin = time.monotonic()
        for each in chats:
            came[each.kind] += await batch(each, range(number, number + BATCH), findings)
        number += BATCH
        budget.tell(f"{sum(each.total() for each in came.values()):,} streams")
        longest = max(longest, time.monotonic() - begin)
        if budget.left < longest:
            break
    for each in chats:
        await each.aclose()
    return came


def figures(budget: Budget) -> Iterator[Figure]:
    findings = Findings(OUTSIDE, HISTORIES)
    logging.getLogger("google_genai").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Google's SDK warns of words that it does not know
        came = asyncio.run(_all_in_turn(budget, findings))
    whole = Counter[str]()
    for tally in came.values():
        whole += tally
    told = ", ".join(f"{kind} {tally.total():,}" for kind, tally in came.items())
    yield tries(NAME, "mutated streams", whole.total(), 4 * BATCH, told)
    answered = whole["answered"]
    errors = ", ".join(f"{name} {n:,}" for name, n in whole.most_common() if name != "answered")
    # Both, or the mutants were none, or nothing else.
    yield tries(NAME, "of them answered", answered, whole.total() // 20)
    yield tries(NAME, "of them errors", whole.total() - answered, whole.total() // 20, errors)
    yield from findings.figures(NAME)
