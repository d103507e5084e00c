"""`Unconfined`: commands without a sandbox, for containers and machines that are thrown away."""

from __future__ import annotations

import os
import sys
from typing import Final

from hookline.workspace._sandbox.job import ProcessJob, limited
from hookline.workspace._sandbox.protocol import CommandLimits, View

_VARIABLES: Final = ("PATH", "HOME", "LANG", "USER", "TMPDIR")


class Unconfined:
    """Runs commands with the rights of this program. Limits of time, memory and output hold."""

    name = "none"
    """The name of the sandbox."""
    confines = False
    """False: each command needs an approval."""

    async def check(self) -> str | None:
        """Return why commands cannot run here."""
        return None if sys.platform != "win32" else "commands need bash, on Linux or macOS"

    async def start(self, command: str, view: View, limits: CommandLimits) -> ProcessJob:
        """Start a line of bash."""
        env = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        return await ProcessJob.start(
            *("/bin/bash", "--norc", "--noprofile", "-c", limited(limits, processes=False)),
            *("bash", command),
            limits=limits,
            fd=view.fd,
            env={**env, "TERM": "dumb", "PAGER": "cat", **view.env},
            cwd=os.path.join(view.root, view.cwd),
        )

    async def aclose(self) -> None:
        """Do nothing."""
