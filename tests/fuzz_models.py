"""Mutated streams by the hundred thousand: `scripts/dev/fuzz-models 200000`, or of one adapter.

Prints how many were tried and what came of them; the first that is no error of ours ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import time
import warnings

from tests._mutants import fuzz
from tests._wires import WIRES


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/dev/fuzz-models", description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=10_000, help="of each adapter")
    parser.add_argument("adapter", nargs="?", default="all", choices=["all", *WIRES])
    parser.add_argument("seed", type=int, nargs="?", default=0, help="number of the first mutant")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # Google's SDK warns of words that it does not know
    for kind in WIRES:
        if given.adapter not in ("all", kind):
            continue
        start = time.perf_counter()
        tally = asyncio.run(fuzz(kind, given.count, given.seed))
        took = time.perf_counter() - start
        told = ", ".join(f"{name} {number}" for name, number in tally.most_common())
        print(f"{kind}: {tally.total():,} mutated streams in {took:.0f} s: {told}", flush=True)


if __name__ == "__main__":
    main()
