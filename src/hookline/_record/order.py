"""The order of a chat's steps, read from their recorded names.

A replay compares steps: a new hook's step runs before a recorded step that comes later in a chat.
"""

from __future__ import annotations

import sys
from typing import Final, TypeAlias

from hookline._record.runtime import CALL, HOOK_KEYS, KEYS


def phase_of(name: str) -> str:
    """The kind of a step: `"run"` for `step/0/call/a/run`, `"outcome"` for `done/outcome/0`."""
    parts = name.split("/")
    if parts[0] == "stop":
        return parts[-1] if len(parts) == 3 else "stop"
    if parts[0] != "step":
        return parts[1] if len(parts) == 3 else parts[0]
    return parts[4] if len(parts) >= 5 else parts[2]


def _phases(prefix: str) -> tuple[str, ...]:
    """The phases of the keys that begin with the prefix, in their order."""
    rests = [key.removeprefix(prefix) for key in KEYS if key.startswith(prefix)]
    return tuple(dict.fromkeys(rest.partition("/")[0] for rest in rests))


_FIRST: Final = ("id/input", "start", "preChat", "id/preChat")
_PHASES: Final = _phases("step/{}/")
_CALL_PHASES: Final = _phases(f"{CALL}/")
_RUN: Final = _CALL_PHASES.index("run") + 1
_NONE: Final = (0, 0)
_LAST: Final = _phases("{}/")  # of the end of a chat
_HOOKS: Final = frozenset(map(phase_of, HOOK_KEYS))


Rank: TypeAlias = tuple[int, int, tuple[int, int]]
END: Final[Rank] = (sys.maxsize, 0, _NONE)
"""The lowest rank of a step at the end of a chat."""


def is_hook(name: str) -> bool:
    """Whether the step runs only hooks: without them, the chat does not ask for the step."""
    return phase_of(name) in _HOOKS


def rank_of(name: str) -> Rank:
    """The rank of a step within a chat: a step with a lower rank comes first.

    Calls of one answer run in parallel, so a rank orders the steps of the same call only.
    """
    parts = name.split("/")
    if parts[0] == "step":
        return int(parts[1]), _PHASES.index(parts[2]), _rank_in_call(parts[4:])
    if name in _FIRST:
        return -1, _FIRST.index(name), _NONE
    if parts[0] in ("message", "stop"):  # the name does not tell the step: after all steps
        return sys.maxsize - 1, parts[0] == "stop", _NONE
    return END[0], _LAST.index(parts[1]), _NONE


def _rank_in_call(parts: list[str]) -> tuple[int, int]:
    """The rank of a step of a call: a sub-agent waits and runs in rounds between run and result."""
    if not parts:
        return _NONE
    if parts[0] == "child":
        return _RUN, 2 * int(parts[1]) - 1
    return _CALL_PHASES.index(parts[0]) + 1, 2 * int(parts[1]) if len(parts) > 1 else 0


def is_after(name: str, other: str) -> bool:
    """Whether a step certainly comes after another step of the chat.

    Within the calls of one answer, that is certain only for the steps of the same call.
    """
    mine, theirs = rank_of(name), rank_of(other)
    if theirs[1] == _PHASES.index("call") and theirs[0] not in (-1, sys.maxsize):
        if mine[0] == sys.maxsize - 1:  # a message: perhaps that of another call
            return False
        if mine[:2] == theirs[:2] and name.split("/")[3] != other.split("/")[3]:
            return False
    return mine > theirs


def comes_before(name: str, other: str) -> bool:
    """Whether a step comes before another step of the chat, or may run beside it."""
    mine, theirs = rank_of(name), rank_of(other)
    call = _PHASES.index("call")
    if mine[:2] == theirs[:2] and mine[1] == call and name.split("/")[3] != other.split("/")[3]:
        return True
    return mine <= theirs
