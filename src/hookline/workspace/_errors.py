"""The errors of a workspace. The model reads all but the first as the error of its tool call.

A text names files by their path in the workspace, never by a path of this machine, and says what
the model can do next.
"""

from __future__ import annotations

from hookline.errors import ToolCallError, UsageError


class WorkspaceClosedError(UsageError):
    """The workspace is closed.

    What to do: use the workspace within `async with`, or before the agent that uses it is closed.
    """


class OutsideError(ToolCallError):
    """The path leads out of the workspace.

    What to do: use a path beneath the workspace.
    """


class MissingError(ToolCallError):
    """There is no such file or folder.

    What to do: list the folder, or use one of the names in the text.
    """


class NotAFileError(ToolCallError):
    """The path is a folder, a device, a socket or a pipe, or cannot be opened.

    What to do: use the path of a regular file.
    """


class NotTextError(ToolCallError):
    """The file is binary, or its encoding is not known.

    What to do: convert the file, as the text says, or leave it as it is.
    """


class TooLargeError(ToolCallError):
    """The file, or the new text, has more bytes than a tool handles.

    What to do: search the file with grep, or work on a part of it with a command.
    """


class NotReadError(ToolCallError):
    """The file exists, and this conversation has not read it.

    What to do: read the file, then change it.
    """


class ChangedError(ToolCallError):
    """The file has changed since it was read, or since the change was approved.

    What to do: read the file again, then change it.
    """


class ProtectedError(ToolCallError):
    """The file belongs to git or to a tool that runs code; nobody may change it from here.

    What to do: leave the file as it is, and ask the user to change it.
    """


class NoMatchError(ToolCallError):
    """The text to replace does not occur in the file.

    What to do: read the file, and copy the text exactly.
    """


class AmbiguousError(ToolCallError):
    """The text to replace occurs more than once.

    What to do: pass more of the surrounding text, or `all=true`.
    """


class SearchError(ToolCallError):
    """A search failed: the pattern is not valid, or the program for searching is not installed.

    What to do: correct the pattern as the text says, or install the program.
    """


class NoSandboxError(ToolCallError):
    """Commands cannot run, because there is no sandbox for them.

    What to do: tell the user; the text says what has to be installed or changed.
    """
