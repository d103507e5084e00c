"""The deaths of lives on Restate, and how they are taken back.

A step of the workflow is open at Restate while a life runs, and a life that ends well closes it.
If the worker dies, the step stays open, and the next life closes it with a mark. A worker that has
only lost its connection takes the death back: through the ingress it resolves a promise of the
workflow with the number of the step. So does an operator who retries a chat. Which deaths make a
chat a suspect is the rule of all engines, in `_shared.deaths`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from hookline.durable._shared.deaths import Progress, Toll, outcome_of
from hookline.durable.restate._journal_entries import death_in, is_batch, lives_of
from hookline.runtimes import Batch

_batch: Final = msgspec.json.Decoder(Batch)


def undone_by(step: int) -> str:
    """Return the name of the promise that takes the death at a step back."""
    return f"undone/{step}"


def quarantine_in(id: str, failure: str) -> str | None:
    """Return the outcome of a paused chat, from its last failure; None if no deaths paused it."""
    match = re.search(r"(\d+) workers died", failure)
    return None if match is None else outcome_of(id, int(match[1]))


def toll_of(steps: Sequence[bytes], undone: Collection[str]) -> Toll:
    """Return the toll of a workflow's steps; `undone` names the promises that are resolved."""
    try:
        return _toll_of(steps, undone)
    except msgspec.DecodeError:  # of newer code: the journal refuses it
        return Toll()


def _toll_of(steps: Sequence[bytes], undone: Collection[str]) -> Toll:
    toll, life = Toll(), list[bytes]()
    for number, data in enumerate(steps, 1):
        is_death = death_in(data) is not None
        if is_death and undone_by(number) not in undone:
            toll, life = toll.after(life), []
        elif is_death or _begins_life(data):  # the life before it has ended well
            toll = _forgiven(toll, life)
            life = [] if is_death else [data]
        elif is_batch(data):
            life.append(data)
    return _forgiven(toll, life)


def workers_of_the_dead(steps: Sequence[bytes]) -> list[str]:
    """Return the worker of each life that has died; "" for a life that has recorded nothing."""
    lives = lives_of([(0.0, data) for data in steps])
    return [owner.removesuffix("..") for owner, _, _, _, ending in lives if ending == "died"]


def _forgiven(toll: Toll, life: list[bytes]) -> Toll:
    progress = Progress()
    return Toll() if any(progress.look(data) for data in life) else toll


def _begins_life(data: bytes) -> bool:
    return b'"life"' in data and any(line.kind == "life" for line in _batch.decode(data).lines)
