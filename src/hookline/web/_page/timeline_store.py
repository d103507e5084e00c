"""Store the page's timelines and ratings next to their conversations, in the same store.

A timeline is stored in the `meta` of a conversation without messages. Its id begins with `%~`,
which no principal's key does, so it is in no list and no request can name it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

import msgspec

from hookline import Conversation, Store, Usage
from hookline.errors import HooklineError
from hookline.web._page.recorder import Record, RecordedRun
from hookline.web._protocols.masked_texts import DescribeError, Mask
from hookline.web._runs.run import Live

RUNS: Final = 50  # most runs to keep for one conversation
BYTES: Final = 512 * 1024  # most bytes for one conversation; the oldest runs are dropped first
PREFIX: Final = "%~timeline/"

logger = logging.getLogger("hookline.web")


class Timeline(msgspec.Struct, kw_only=True):
    """The stored data of a conversation's timeline."""

    runs: list[RecordedRun] = []
    feedback: dict[str, str] = {}
    """The ratings of answers, by message id."""


class Timelines:
    """The timelines of all conversations of a store."""

    def __init__(
        self,
        store: Store,
        *,
        describe_error: DescribeError | None = None,
        price: Callable[[Usage], float] | None = None,
    ) -> None:
        self._store = store
        self._describe_error = describe_error
        self._price = price
        self._lock = asyncio.Lock()
        self._fresh: dict[str, list[Record]] = {}  # records not stored yet, by key
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, key: str, live: Live) -> Record:
        """Create the record of a new run."""
        header = live.header
        record = Record(
            RecordedRun(run=header.run, chat_id=header.chat_id, started=time.time()),
            mask=Mask(self._describe_error, chat_id=header.chat_id),
            scope_of=live.scope_of,
            price=self._price,
            on_end=lambda record: self._on_end(key, record),
        )
        self._fresh.setdefault(key, []).append(record)
        return record

    def _on_end(self, key: str, record: Record) -> None:
        task = asyncio.get_running_loop().create_task(self._keep(key, record))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep(self, key: str, record: Record) -> None:
        def add(timeline: Timeline) -> None:
            timeline.runs.append(record.data)

        try:
            async with self._lock:
                if record in self._fresh.get(key, ()):  # else it was deleted meanwhile
                    await self._change(key, add)
        except HooklineError as exc:
            logger.warning("a timeline was not stored: %s", type(exc).__name__)
            logger.debug("a timeline was not stored", exc_info=exc)
        finally:
            fresh = self._fresh.get(key, [])
            if record in fresh:
                fresh.remove(record)
            if not fresh:
                self._fresh.pop(key, None)

    async def read(self, key: str) -> Timeline:
        """Return the timeline of a conversation, including the active run."""
        async with self._lock:
            timeline = _timeline_of(await Conversation.open(self._store, _id_of(key)))
        ids = {run.run for run in timeline.runs}
        fresh = [record.data for record in self._fresh.get(key, ()) if record.data.run not in ids]
        timeline.runs.extend(fresh)
        return timeline

    async def change(self, key: str, change: Callable[[Timeline], None]) -> None:
        """Change the stored timeline."""
        async with self._lock:
            await self._change(key, change)

    async def _change(self, key: str, change: Callable[[Timeline], None]) -> None:
        conversation = await Conversation.open(self._store, _id_of(key))
        timeline = _timeline_of(conversation)
        change(timeline)
        conversation.meta["hookline.web"] = _within(timeline)
        await conversation.save()

    async def forget(self, key: str) -> None:
        """Delete the timeline of a conversation."""
        async with self._lock:
            self._fresh.pop(key, None)
            await self._store.delete(_id_of(key))

    async def settle(self) -> None:
        """Wait until all ended runs are stored."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))


def _id_of(key: str) -> str:
    return PREFIX + sha256(key.encode()).hexdigest()


def _timeline_of(conversation: Conversation) -> Timeline:
    try:
        return msgspec.convert(conversation.meta.get("hookline.web", {}), Timeline)
    except msgspec.ValidationError:
        return Timeline()  # stored by another version


def _within(timeline: Timeline) -> Any:
    """Convert the timeline to JSON data within the limits: a run that does not fit loses its
    details, and the oldest runs are dropped.
    """
    runs: list[Any] = []
    room = BYTES
    for run in reversed(timeline.runs[-RUNS:]):
        fits = len(msgspec.json.encode(run)) <= room
        fitting = run if fits else _without_details(run)
        room -= len(msgspec.json.encode(fitting))
        if room < 0:
            break
        runs.insert(0, msgspec.to_builtins(fitting))
    return {"runs": runs, "feedback": timeline.feedback}


def _without_details(run: RecordedRun) -> RecordedRun:
    return msgspec.structs.replace(run, steps=[], frames=list(map(_brief, run.frames)))


def _brief(frame: dict[str, Any]) -> dict[str, Any]:
    """A frame without the changes of a hook, and without the difference of a file."""
    frame = {key: frame[key] for key in frame if key != "changes"}
    if isinstance(frame.get("data"), dict) and "diff" in frame["data"]:
        frame["data"] = {**frame["data"], "diff": ""}
    return frame
