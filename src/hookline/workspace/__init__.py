"""A workspace: a directory with tools that read, search and change it, and a sandbox for commands.

    agent = Agent("anthropic:claude-…", plugins=[Workspace(".")])

Every tool is an ordinary tool: hooks see each call before it runs. `pip install
"hookline[workspace]"` brings bubblewrap for the sandbox, and ripgrep for the search.

Experimental: this module may change in a minor version.
"""

from hookline.workspace._commands.plain import plain_commands
from hookline.workspace._commands.rules import Rule, Rules, Verdict
from hookline.workspace._errors import (
    AmbiguousError,
    ChangedError,
    MissingError,
    NoMatchError,
    NoSandboxError,
    NotAFileError,
    NotReadError,
    NotTextError,
    OutsideError,
    ProtectedError,
    SearchError,
    TooLargeError,
    WorkspaceClosedError,
)
from hookline.workspace._files.access import PROTECTED
from hookline.workspace._guard import Mode
from hookline.workspace._sandbox.bwrap import Bwrap
from hookline.workspace._sandbox.protocol import CommandLimits, Job, Sandbox, View
from hookline.workspace._sandbox.unconfined import Unconfined
from hookline.workspace._snapshots import Snapshot
from hookline.workspace._tenants import Workspaces, by_conversation
from hookline.workspace._workspace import TOOLS, Workspace

__all__ = [
    "PROTECTED",
    "TOOLS",
    "AmbiguousError",
    "Bwrap",
    "ChangedError",
    "CommandLimits",
    "Job",
    "MissingError",
    "Mode",
    "NoMatchError",
    "NoSandboxError",
    "NotAFileError",
    "NotReadError",
    "NotTextError",
    "OutsideError",
    "ProtectedError",
    "Rule",
    "Rules",
    "Sandbox",
    "SearchError",
    "Snapshot",
    "TooLargeError",
    "Unconfined",
    "Verdict",
    "View",
    "Workspace",
    "WorkspaceClosedError",
    "Workspaces",
    "by_conversation",
    "plain_commands",
]
