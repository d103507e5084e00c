"""Whatever a service sends, a chat ends with an answer or an error of ours, and a valid history.

`scripts/dev/fuzz-models` tries as many as one likes; `HOOKLINE_MUTANTS` sets the number here.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests._mutants import fuzz
from tests._wires import WIRES

COUNT = int(os.environ.get("HOOKLINE_MUTANTS", "1000"))


@pytest.mark.filterwarnings("ignore::UserWarning")  # Google's SDK, of words it does not know
@pytest.mark.parametrize("kind", WIRES)
@pytest.mark.timeout(60 + COUNT / 50)
async def test_no_mutant_crashes_an_adapter_or_breaks_a_history(kind: Any) -> None:
    tally = await fuzz(kind, COUNT, 0)
    print(f"{kind}: {tally.total()} mutated streams: {dict(tally)}")
    assert tally.total() == COUNT
    assert tally["answered"] > COUNT / 10
    assert tally["MalformedStreamError"] > COUNT / 10
