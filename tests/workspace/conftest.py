"""Each test here runs as a user without rights, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hookline import Agent, Conversation, Limits, ToolCall
from hookline.testing import ScriptedModel
from hookline.workspace import Bwrap, Workspace
from hookline.workspace._files.openat import KERNEL
from hookline.workspace._files.root import Root

from ._unprivileged import limit_processes, run_in_a_process_of_its_own

HERE = Path(__file__).parent
SANDBOX_TESTS = os.environ.get("CI") or os.environ.get("HOOKLINE_SANDBOX") == "required"
"""Whether a sandbox that cannot run fails the tests; otherwise they are skipped."""


def pytest_runtest_protocol(item: pytest.Item, nextitem: Any) -> object:
    ours = HERE in item.path.parents  # pytest calls this for the tests of all folders
    if not ours or sys.platform == "win32" or os.geteuid() != 0:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in run_in_a_process_of_its_own(item):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.fixture(autouse=True)
def few_processes() -> None:
    limit_processes()


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder that the test owns; pytest's own may belong to root."""
    folder = Path(tempfile.mkdtemp(prefix="hookline-test-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def folder(base: Path) -> Path:
    """The folder of a workspace, and beside it a file that nobody may reach."""
    folder = base / "project"
    folder.mkdir()
    (base / "outside.txt").write_text("OUTSIDE")
    return folder


EACH_WAY = pytest.mark.parametrize("kernel", [True, False], ids=["openat2", "walk"], indirect=True)
"""Paths are resolved by the kernel, and component by component."""


@pytest.fixture
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the kernel resolves the paths of the workspaces that are opened from here on."""
    kernel: bool = getattr(request, "param", KERNEL)
    if kernel and not KERNEL:
        pytest.skip("this kernel has no openat2")
    monkeypatch.setitem(Root.__init__.__kwdefaults__, "kernel", kernel)
    return kernel


@pytest.fixture
async def sandbox() -> Bwrap:
    """Bubblewrap, if it can run here."""
    bwrap = Bwrap()
    problem = await bwrap.check()
    if problem is not None:
        (pytest.fail if SANDBOX_TESTS else pytest.skip)(f"no sandbox: {problem}")
    return bwrap


@pytest.fixture
def workspace(folder: Path, base: Path, kernel: bool) -> Any:
    """A function that opens the folder as a workspace."""

    def opened(**options: Any) -> Workspace:
        return Workspace(folder, **{"state": base / "state", "mode": "edits", **options})

    return opened


class Hands:
    """An agent that makes the calls that a test wants, in one conversation.

    Without `guarded`, the tools refuse by themselves what the guard would refuse before they run.
    """

    def __init__(self, workspace: Workspace, *, guarded: bool = True, **options: Any) -> None:
        self.workspace = workspace
        self._guarded = guarded
        self.conversation = Conversation()
        self._options = options
        self._number = 0

    async def __call__(self, tool: str, **arguments: Any) -> Any:
        """Make one call; return its message in the history."""
        self._number += 1
        made = ToolCall(id=f"c{self._number}", name=tool, arguments=arguments)
        response = await self._agent(made).chat("go", conversation=self.conversation)
        return response.tool_results[0]

    def _agent(self, turn: Any) -> Agent[Any]:
        return Agent(
            ScriptedModel(turn, "done"),
            scopes=self.workspace.scopes,
            hooks=self.workspace.hooks if self._guarded else (),
            **self._options,
        )

    async def at_once(self, calls: Iterable[ToolCall]) -> AsyncGenerator[Any]:
        """Make many calls, which run in parallel; yield the events."""
        turn = [*calls]
        stream = self._agent(turn).chat_stream(
            "go", conversation=self.conversation, limits=Limits(tool_calls=len(turn))
        )
        async with stream:
            async for event in stream:
                yield event

    async def text(self, tool: str, **arguments: Any) -> str:
        """Make one call that succeeds; return what the model reads."""
        message = await self(tool, **arguments)
        assert message.outcome == "ok", message.text
        text: str = message.text
        return text

    async def error(self, tool: str, **arguments: Any) -> str:
        """Make one call that fails; return what the model reads."""
        message = await self(tool, **arguments)
        assert message.outcome != "ok", message.text
        text: str = message.text
        return text


@pytest.fixture
def hands(workspace: Any) -> Any:
    """A function that opens the workspace and returns its tools."""
    opened: list[Workspace] = []

    def made(
        *,
        approver: Any = None,
        guarded: bool = True,
        parallel_tools: bool = True,
        **options: Any,
    ) -> Hands:
        opened.append(workspace(**options))
        of_agent: dict[str, Any] = {"approver": approver, "parallel_tools": parallel_tools}
        return Hands(opened[-1], guarded=guarded, **of_agent)

    return made
