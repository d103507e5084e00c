"""Which version of a file a conversation has read, and which one an approver was shown.

The digests are kept in `run.meta` and `run.state`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from hookline import Run

KEY: Final = "workspace"
"""The key of the data of a workspace in `run.meta` and in `run.state`."""
MOST: Final = 200
"""The number of files that a conversation remembers to have read."""


def read_digest(run: Run[Any], path: str) -> str | None:
    """Return the digest of the version that this conversation has read last."""
    digest = _part(run.meta, "read").get(path)
    return digest if isinstance(digest, str) else None


def note_read(run: Run[Any], path: str, digest: str) -> None:
    """Remember the version that this conversation has read, or written."""
    read = {name: value for name, value in _part(run.meta, "read").items() if name != path}
    latest = [*read.items(), (path, digest)][-MOST:]
    run.meta[KEY] = {**notes_of(run.meta), "read": dict(latest)}


def asked_digest(run: Run[Any]) -> str | None:
    """Return the digest that a file had when this call was shown to an approver."""
    digest = _part(run.state, "asked").get(run.call_id or "")
    return digest if isinstance(digest, str) else None


def note_asked(run: Run[Any], digest: str) -> None:
    """Remember the version that is shown to an approver; "" if there is no file."""
    digests = {**_part(run.state, "asked"), run.call_id or "": digest}
    run.state[KEY] = {**notes_of(run.state), "asked": digests}


def notes_of(holder: Mapping[str, Any]) -> dict[str, Any]:
    """Return the workspace's data in `run.meta` or `run.state`."""
    value: Any = holder.get(KEY)
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}


def _part(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value: Any = notes_of(holder).get(name)
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
