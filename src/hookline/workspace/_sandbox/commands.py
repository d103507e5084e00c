"""`Commands`: runs lines of bash in the workspace, one after the other.

Before a command, the protected and hidden files are found; after it, protected files that it has
made are renamed, so that no editor, shell or git on this machine runs them.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sysconfig
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Final

import msgspec

from hookline.workspace._errors import NoSandboxError, SearchError
from hookline.workspace._files.access import Access
from hookline.workspace._files.protected_files import Scan
from hookline.workspace._sandbox.bwrap import INSTALL
from hookline.workspace._sandbox.protocol import CommandLimits, Job, Sandbox, View
from hookline.workspace._sandbox.unconfined import Unconfined

_FOUND_BYTES: Final = 64 << 20
_RG: Final = "/run/rg"
"""The path of ripgrep in a sandbox."""


class Commands:
    """The sandbox of a workspace, and what a command in it sees."""

    def __init__(
        self, sandbox: Sandbox, access: Access, limits: CommandLimits, env: Mapping[str, str]
    ) -> None:
        self.sandbox = sandbox
        self.limits = limits
        self._access = access
        self._env = dict(env)
        self._scan = Scan(access)
        self._lock = asyncio.Lock()
        self._problem: str | None = None
        self._is_checked = False
        self._rg = _program("rg")

    async def check(self) -> str | None:
        """Return None if commands can run, else the reason and how to mend it."""
        if not self._is_checked:
            self._problem = await self.sandbox.check()
            self._is_checked = True
        return self._problem

    @asynccontextmanager
    async def started(
        self, line: str, cwd: str, limits: CommandLimits
    ) -> AsyncGenerator[tuple[Job, list[tuple[str, str]]]]:
        """Run a command; the list has what was renamed, once the block has ended."""
        problem = await self.check()
        if problem is not None:
            raise NoSandboxError(f"commands cannot run: {problem}; continue without commands")
        renamed: list[tuple[str, str]] = []
        async with self._lock:
            marks = await asyncio.to_thread(self._scan.marks)
            read_only, hidden_paths = self._scan.view(marks)
            view = self._view(cwd, read_only, hidden_paths)
            job = await self.sandbox.start(line, view, limits)
            try:
                yield job, renamed
            finally:
                job.kill()
                await job.wait()
                renamed += await asyncio.to_thread(self._scan.hold_back, marks)

    async def search(self, arguments: list[str]) -> tuple[int, bytes]:
        """Run ripgrep in the workspace, which it can only read; return its status and output."""
        if self._rg is None:
            raise SearchError(f"ripgrep is not installed: {INSTALL}; use list and read instead")
        sandbox, program = self.sandbox, _RG
        if await self.check() is not None or not sandbox.confines:
            sandbox, program = Unconfined(), self._rg  # no command runs, so no name is swapped
        hidden_paths: tuple[str, ...] = ()
        if self._access.rules.hiding:
            marks = await asyncio.to_thread(self._scan.marks)
            _, hidden_paths = self._scan.view(marks)
        view = self._view(".", (".",), hidden_paths, {_RG: self._rg})
        limits = msgspec.structs.replace(self.limits, output_bytes=_FOUND_BYTES)
        job = await sandbox.start(f"exec {shlex.join([program, *arguments])}", view, limits)
        chunks: list[bytes] = []
        try:
            async with aclosing(job.output()) as output:
                chunks += [chunk async for chunk in output]
        finally:
            job.kill()
            status = await job.wait()
        return status, b"".join(chunks)

    @property
    def can_search(self) -> bool:
        """Whether ripgrep is installed."""
        return self._rg is not None

    def _view(
        self,
        cwd: str,
        read_only: tuple[str, ...],
        hidden: tuple[str, ...],
        programs: Mapping[str, str] | None = None,
    ) -> View:
        root = self._access.root
        return View(
            root=root.path,
            fd=root.fd,
            at=root.at,
            cwd=cwd,
            read_only=read_only,
            hidden=hidden,
            env=self._env,
            programs=programs or {},
        )


def _program(name: str) -> str | None:
    """Return the path of a program: beside this Python, or of the system."""
    folders = (sysconfig.get_path("scripts"), "/usr/local/bin", "/usr/bin", "/bin")
    path = shutil.which(name, path=os.pathsep.join(folders))
    return None if path is None else os.path.realpath(path)
