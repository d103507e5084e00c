"""Which files a tool may use: not the denied ones, and protected ones only to read."""

from __future__ import annotations

from typing import Final

from hookline.errors import ToolDenied
from hookline.workspace._commands.rules import Rules, compiled
from hookline.workspace._errors import MissingError, ProtectedError
from hookline.workspace._files.root import Root

PROTECTED: Final = (
    *(".git", ".gitmodules", ".vscode", ".idea", ".claude", ".agents", ".mcp.json", ".envrc"),
    *(".devcontainer", "**/.github/workflows", ".hookline"),
)
"""Git's own files, and names whose content editors, shells and services run later."""


class Access:
    """The rules about the files of a workspace."""

    def __init__(self, root: Root, rules: Rules, protect: tuple[str, ...]) -> None:
        self.root = root
        self.rules = rules
        root.shows = lambda path: not rules.hides(path)
        self._protects = [compiled(pattern) for pattern in protect]

    def protects(self, path: str) -> bool:
        """Return whether a path is protected, or beneath something that is."""
        return any(fits(path.casefold()) for fits in self._protects)

    def may_read(self, path: str) -> None:
        """Raise ToolDenied if a rule denies reading this file."""
        if self.rules.hides(path):
            raise ToolDenied(f"{path!r} must not be read; continue without it")

    def may_write(self, path: str) -> None:
        """Raise if the file is protected, or a rule denies writing it."""
        if self.protects(path):
            raise ProtectedError(f"{path!r} is protected; ask the user to change it")
        verdict = self.rules.for_paths("edit", [path])
        if verdict is not None and verdict.kind == "deny":
            raise ToolDenied(f"{path!r} must not be changed ({verdict.rule}); leave it as it is")

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names of a file: as it was written, and where links lead."""
        name = _normal(self.root.relative(path))
        real = self._real(name)
        return (name,) if real == name else (name, real)

    def _real(self, path: str) -> str:
        """Where a path leads; what does not exist yet is beneath its folder."""
        rest: list[str] = []
        while True:
            real = self.root.resolve(path)
            if real is not None:
                return "/".join([part for part in (real, *rest) if part != "."]) or "."
            above, _, name = path.rpartition("/")
            if not name or name == "..":
                raise MissingError(f"{path!r} does not exist; list the workspace")
            rest.insert(0, name)
            path = above or "."


def _normal(path: str) -> str:
    """Remove "." and empty parts; ".." stays, since what is before it may be a link."""
    return "/".join(part for part in path.split("/") if part not in ("", ".")) or "."
