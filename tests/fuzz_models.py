"""Mutated streams by the hundred thousand: `scripts/fuzz-models 200000`, or of one adapter.

Prints how many were tried and what came of them; the first that is no error of ours ends it.
"""

from __future__ import annotations

import asyncio
import sys
import time
import warnings

from tests._mutants import fuzz
from tests._wires import WIRES


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    warnings.simplefilter("ignore")  # Google's SDK warns of words that it does not know
    for kind in WIRES:
        if len(sys.argv) > 2 and sys.argv[2] not in ("all", kind):
            continue
        start = time.perf_counter()
        tally = asyncio.run(fuzz(kind, count, seed))
        took = time.perf_counter() - start
        told = ", ".join(f"{name} {number}" for name, number in tally.most_common())
        print(f"{kind}: {tally.total():,} mutated streams in {took:.0f} s: {told}", flush=True)


if __name__ == "__main__":
    main()
