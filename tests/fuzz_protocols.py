"""Forged requests by the thousand: `scripts/dev/fuzz-protocols --tries 10000`.

Half of them begin a chat; the others continue one: approvals, results of client tools, repetitions.
Prints how many were tried and what the answers were; the first that reaches a provider with what
only the agent's owner may send ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from tests.web._forging import fuzz, fuzz_continued


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/dev/fuzz-protocols", description=__doc__)
    parser.add_argument("--tries", type=int, default=10_000, help="the number of requests")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first request")
    options = parser.parse_args()
    start = time.perf_counter()
    tally = asyncio.run(fuzz(options.tries - options.tries // 2, options.first))
    tally += asyncio.run(fuzz_continued(options.tries // 2, options.first))
    took = time.perf_counter() - start
    counts = ", ".join(f"{answer}: {number:,}" for answer, number in sorted(tally.items()))
    print(f"{tally.total():,} forged requests in {took:.0f} s: {counts}")


if __name__ == "__main__":
    main()
