"""What a conversation has read, and what was approved: kept in `run.meta` and `run.state`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from hookline import Run

KEY: Final = "workspace"
"""The key of this data in `run.meta` and in `run.state`."""
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
    run.meta[KEY] = {**_whole(run.meta), "read": dict(latest)}


def asked_digest(run: Run[Any]) -> str | None:
    """Return the digest that a file had when this call was shown to an approver."""
    digest = _part(run.state, "asked").get(run.call_id or "")
    return digest if isinstance(digest, str) else None


def note_asked(run: Run[Any], digest: str) -> None:
    """Remember the version that is shown to an approver; "" if there is no file."""
    digests = {**_part(run.state, "asked"), run.call_id or "": digest}
    run.state[KEY] = {**_whole(run.state), "asked": digests}


def only_rules(run: Run[Any]) -> list[str] | None:
    """Return the rules to which skills have limited this chat; None if there are none.

    The skills of a chat also limit its sub-agents.
    """
    rules: Any = _whole(run.state).get("only")
    own = cast("list[str]", rules) if isinstance(rules, list) else None
    above = None if run.parent is None else only_rules(run.parent)
    if own is None or above is None:
        return above if own is None else own
    return [rule for rule in own if rule in above]


def note_only(run: Run[Any], rules: list[str]) -> None:
    """Limit this chat to these rules, and to those of earlier skills."""
    run.state[KEY] = {**_whole(run.state), "only": rules}


def _whole(holder: Mapping[str, Any]) -> dict[str, Any]:
    value: Any = holder.get(KEY)
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}


def _part(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value: Any = _whole(holder).get(name)
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
