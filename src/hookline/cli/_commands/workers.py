"""`hookline serve --workers N`: N processes behind one socket, which share a relay.

The first process listens, and starts the others with the same command, and with the socket, the
token and the relay's address in their environment. A worker that dies is restarted, unless it could
not start.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

SOCKET: Final = "HOOKLINE_SERVE_SOCKET"  # the file descriptor of the socket, for a worker
PAUSE: Final = 0.5  # seconds before a dead worker is restarted


def inherited_socket() -> socket.socket | None:
    """Return the socket of the first process, if this process is a worker."""
    number = os.environ.pop(SOCKET, None)
    return None if number is None else socket.socket(fileno=int(number))


def hangups() -> tuple[signal.Signals, ...]:
    """Return the signal that the terminal was closed, unless `nohup` has made us ignore it."""
    number = getattr(signal, "SIGHUP", None)
    return () if number is None or signal.getsignal(number) is signal.SIG_IGN else (number,)


async def supervise(
    command: Sequence[str], listener: socket.socket, *, workers: int, token: str, relay: str
) -> int:
    """Run the workers until a signal; returns the exit status."""
    number = listener.fileno()
    environment = {
        **os.environ,
        SOCKET: str(number),
        "HOOKLINE_TOKEN": token,
        "HOOKLINE_RELAY": relay,
    }
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for ending in (signal.SIGINT, signal.SIGTERM, *hangups()):
        loop.add_signal_handler(ending, stopping.set)

    async def begin() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hookline", *command),
            pass_fds=[number],
            env=environment,
            start_new_session=True,  # Ctrl-C in a terminal reaches only the first process
        )

    async def keep() -> int:
        """Keep one worker running; returns the exit status of a worker that cannot start."""
        while True:
            began = loop.time()
            process = await begin()
            leaving = asyncio.create_task(stopping.wait())
            ending = asyncio.create_task(process.wait())
            await asyncio.wait([leaving, ending], return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            if stopping.is_set():
                with suppress(ProcessLookupError):
                    process.terminate()
                await ending
                return 0
            status = ending.result()
            if loop.time() - began < PAUSE or status == 2:  # a restart cannot fix wrong usage
                stopping.set()
                return status if status > 0 else 1
            print("hookline: a worker has died; restarting it", file=sys.stderr, flush=True)
            await asyncio.sleep(PAUSE)

    statuses = await asyncio.gather(*(keep() for _ in range(workers)))
    return max(statuses)
