"""The deaths of lives on Restate, and how they are taken back.

A step of the workflow is open at Restate while a life runs, and a life that ends well closes it.
If the worker dies, the step stays open, and the next life closes it with a mark. A worker that has
only lost its connection takes the death back: through the ingress it resolves a promise of the
workflow with the number of the step. So does an operator who retries a chat. Which deaths make a
chat a suspect is the rule of all engines, in `_polled.deaths`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from hookline.durable._job import encode_outcome
from hookline.durable._polled.deaths import Progress, Toll, outcome_of
from hookline.durable.restate._requests import Ingress, admin_of
from hookline.errors import RemoteChatError, StoreError, UsageError
from hookline.runtimes import Batch

logger = logging.getLogger("hookline.durable")
_AGAIN: Final = 1.0  # seconds before an unreachable server is tried again
_TRIES: Final = 600
_GRACE: Final = 3.0  # seconds for a worker that stops to take deaths back
_MARK: Final = b'{"death":'
_batch: Final = msgspec.json.Decoder(Batch)


async def mark() -> bytes:
    """Return what closes the step of a life that has died."""
    return _MARK + f"{time.time():.3f}}}".encode()


def death_in(data: bytes) -> float | None:
    """Return when a death was noticed, if this step is a mark."""
    if not data.startswith(_MARK):
        return None
    return msgspec.json.decode(data, type=dict[str, float])["death"]


def undone_by(step: int) -> str:
    """Return the name of the promise that takes the death at a step back."""
    return f"undone/{step}"


def quarantine_in(id: str, failure: str) -> str:
    """Return the outcome of a quarantined chat, from its last failure."""
    if match := re.search(r"(\d+) workers died", failure):
        return outcome_of(id, int(match[1]))
    words = "an operator put this chat into quarantine"
    return encode_outcome(id, RemoteChatError(id, "Quarantined", words))


def toll_of(steps: Sequence[bytes], undone: Collection[int]) -> Toll:
    """Return the toll of a workflow's steps; `undone` are the numbers of deaths taken back."""
    try:
        return _toll_of(steps, undone)
    except msgspec.DecodeError:  # of newer code: the journal refuses it
        return Toll()


def _toll_of(steps: Sequence[bytes], undone: Collection[int]) -> Toll:
    toll, life = Toll(), list[bytes]()
    for number, data in enumerate(steps, 1):
        is_death = death_in(data) is not None
        if is_death and number not in undone:
            toll, life = toll.after(life), []
        elif is_death or _begins_life(data):  # the life before it has ended well
            toll = _forgiven(toll, life)
            life = [] if is_death else [data]
        elif data:
            life.append(data)
    return _forgiven(toll, life)


def _forgiven(toll: Toll, life: list[bytes]) -> Toll:
    progress = Progress()
    return Toll() if any(progress.look(data) for data in life) else toll


def _begins_life(data: bytes) -> bool:
    return b'"life"' in data and any(line.kind == "life" for line in _batch.decode(data).lines)


class Deaths(Ingress):
    """Takes deaths back, asks which were taken back, and quarantines chats."""

    def __init__(self, url: str, name: str, admin: str | None) -> None:
        """`url` is the ingress, `name` the name of the workers, and `admin` the admin API."""
        super().__init__(url, name, {})
        self._admin = (admin or admin_of(url)).rstrip("/")
        self._undoing: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._pausing: set[asyncio.Task[None]] = set()

    def take_back(self, id: str, step: int) -> None:
        """Take the death of a life back whose connection has ended in this step."""
        key = id, step
        self._undoing[key] = task = asyncio.create_task(self._take_back(id, step))
        task.add_done_callback(lambda _: self._undoing.pop(key, None))

    async def _take_back(self, id: str, step: int) -> None:
        for _ in range(_TRIES):
            try:
                await self.undo(id, [step])
                return
            except StoreError:
                await asyncio.sleep(_AGAIN)
            except UsageError as exc:  # a proxy denies it
                logger.debug("the death of a life cannot be taken back", exc_info=exc)
                return

    async def toll(self, id: str, steps: Sequence[bytes]) -> Toll | None:
        """Return the toll of a chat; None if Restate does not tell which deaths count."""
        deaths = [number for number, data in enumerate(steps, 1) if death_in(data) is not None]
        try:
            answer = await self._call(f"/{self._name}/{id}/undone", deaths)
        except (StoreError, UsageError) as exc:
            logger.debug("Restate does not tell which deaths count", exc_info=exc)
            return None
        ours = {step for other, step in self._undoing if other == id}
        return toll_of(steps, ours.union(msgspec.json.decode(answer.content, type=list[int])))

    def quarantine(self, invocation: str) -> None:
        """Pause an invocation. If this fails, its next attempt asks again."""
        task = asyncio.create_task(self._pause(invocation))
        self._pausing.add(task)
        task.add_done_callback(self._pausing.discard)

    async def _pause(self, invocation: str) -> None:
        try:
            await self._ask("PATCH", f"{self._admin}/invocations/{invocation}/pause")
        except (StoreError, UsageError) as exc:
            logger.warning("a chat cannot be quarantined: %s", type(exc).__name__)

    async def aclose(self) -> None:
        """Take the remaining deaths back if Restate is reachable, and disconnect."""
        tasks = [*self._undoing.values(), *self._pausing]
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE)
        for task in tasks:
            task.cancel()
        await super().aclose()
