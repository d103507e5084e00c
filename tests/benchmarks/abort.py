"""How long after an abort, a break or the reader's death the socket to a provider is closed.

    python -m tests.benchmarks.abort [RUNS]

The time is from the act to the moment at which the server reads the end of the connection; the
service has fallen silent in the middle of its answer. The limit that is promised is 100 ms.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from statistics import median

from tests._aborts import ACTS, once
from tests._wires import WIRES


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    warnings.simplefilter("ignore", ResourceWarning)  # of the reader that dies
    print(f"milliseconds until the socket is closed, {runs} runs: median, worst")
    for kind in WIRES:
        for act in ACTS:
            times = [asyncio.run(once(kind, act)) * 1000 for _ in range(runs)]
            print(f"{kind:12} {act:8} {median(times):7.2f} {max(times):7.2f}", flush=True)


if __name__ == "__main__":
    main()
