"""`cassette`: a block whose chats are recorded in a file, or replayed from it."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import cast, get_args

from hookline.errors import UsageError
from hookline.points import as_tuple
from hookline.testing.cassette._cassette import VARIABLE, Action, Cassette, Mode
from hookline.testing.cassette._difference import CassetteError
from hookline.testing.cassette._hook_chats import HookChats
from hookline.testing.cassette._scrub import Scrub, scrubber
from hookline.testing.cassette._shape import FIELDS


@contextmanager
def cassette(
    path: str | os.PathLike[str],
    *,
    mode: Mode = "all",
    action: Action = "auto",
    scrub: Scrub | None = None,
    ignore: Iterable[str] = (),
) -> Generator[Cassette]:
    """Record the chats of a block in a file, or replay them from it.

    Pass the cassette to each chat: `hooks=[tape]`. With mode="model", tools run for real. `scrub`
    is called with each text, after the usual secrets were removed. `ignore` names fields of the
    request that are not compared: "system", "tools", "settings", "output", "model", "messages".

    The environment variable HOOKLINE_CASSETTE replaces action="auto". "patch" replays up to the
    first difference of a chat, and goes on with the model from there. The file is written at the
    end of the block, if the block has not raised. If CI is set, nothing is recorded. Raises
    CassetteError if a chat differs, if something recorded did not happen, or if there is no file
    in CI. Raises UsageError for an unknown mode, action or field.
    """
    fields = as_tuple("ignore", ignore)
    unknown = [field for field in fields if field not in FIELDS]
    if unknown:
        raise UsageError(f"ignore={unknown[0]!r} is not a field of a request; use one of {FIELDS}")
    if mode not in get_args(Mode):
        raise UsageError(f"mode={mode!r} must be one of {get_args(Mode)}")
    file = Path(path)
    hook_chats = HookChats()
    tape = Cassette(file, mode, _action(file, action), scrubber(scrub), fields, hook_chats)
    try:
        with hook_chats.follow(tape.hooks):
            yield tape
    except Exception as exc:
        if isinstance(exc, CassetteError) or not tape.differences or tape.action != "replay":
            raise
        raise tape.error() from exc
    tape.finish()


def _action(path: Path, action: Action) -> Action:
    """What to do with this file, in this environment."""
    source, variable = f"action={action!r}", os.environ.get(VARIABLE)
    if action == "auto" and variable:
        action, source = cast("Action", variable), f"{VARIABLE}={variable!r}"
    if action not in get_args(Action):
        raise UsageError(f"{source} must be one of {get_args(Action)}")
    if action == "auto":
        action = "replay" if path.exists() else "record"
    if action in ("replay", "patch") and not path.exists():
        raise CassetteError(f"{source}: there is no cassette {str(path)!r}; record it first")
    if action != "replay" and os.environ.get("CI", "").lower() not in ("", "0", "false"):
        raise CassetteError(
            f"the cassette {str(path)!r} would be recorded, but CI is set, where nothing is "
            "recorded; run the test on your machine, and commit the file"
        )
    return action
