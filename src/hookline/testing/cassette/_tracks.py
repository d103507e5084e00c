"""The file of a cassette, and its tracks: one for each chat, also of sub-agents.

A track is named by the chat's message, or for a sub-agent by the call that leads to it. So it does
not matter in which order chats run at the same time. Chats with equal messages are numbered.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from hookline import Run
from hookline.testing.cassette._difference import CassetteError, Difference, pretty
from hookline.testing.cassette._scrub import Scrub
from hookline.testing.cassette._shape import fold, unfold

FORMAT: Final = 1
NAME_LENGTH: Final = 60
AGAIN: Final = "delete the file and run the test to record it again"


class Request(msgspec.Struct):
    """A request and its answer."""

    step: int
    """The step of the chat, counted from 0."""
    body: dict[str, Any]
    """What the model read: the system text, tools, settings and messages, without ids."""
    answer: dict[str, Any] = {}
    """The `chunks`, the `error` if there was one, and `ended`, false if the answer was cut off."""


class CallEntry(msgspec.Struct, omit_defaults=True):
    """One run of a call."""

    tool: str
    """The tool's name."""
    arguments: dict[str, Any] = {}
    """The arguments with which it ran."""
    effects: list[dict[str, Any]] = []
    """The progress that the tool reported and the questions that it asked, in order."""
    changes: dict[str, dict[str, Any]] = {}
    """The values that the tool has put into `run.state` and `run.meta`."""
    leads: bool = False
    """Whether the tool leads to another agent, which is replayed in its own track."""
    stops: bool = False
    """Whether the tool ended the chat with StopChat."""
    ended: bool = True
    """False if the chat was aborted while the tool ran."""
    result: dict[str, Any] | None = None
    """The result as JSON data; None if the tool leads to another agent, or did not end."""


class Abort(msgspec.Struct, omit_defaults=True):
    """How a chat was aborted."""

    reason: str | None = None
    """The reason, if there was one."""
    by_reader: bool = False
    """Whether the reader left the stream."""


class Track(msgspec.Struct, omit_defaults=True):
    """What a cassette has of one chat."""

    steps: int = 0
    """The number of steps that have begun."""
    requests: list[Request] = []
    """The requests in order, also those that failed."""
    calls: dict[str, list[CallEntry]] = {}
    """The runs of each call, by its step and its position in the answer: `0.1`."""
    abort: Abort | None = None
    """How the chat was aborted; None if it was not."""
    is_inner: bool = False
    """Whether a tool or a hook of another chat has begun the chat."""


class ChatTrack:
    """One chat: its recorded track, and what has happened in this run."""

    def __init__(
        self, name: str, recorded: Track, parent: ChatTrack | None, call: str, run: Run[Any]
    ) -> None:
        self.name = name
        self.recorded = recorded
        self.parent = parent
        self.call = call  # of the parent's, that leads here
        self.run = run
        self.is_live = False  # a difference was found, and the rest is recorded
        self.now = Track()
        self.places: dict[str, str] = {}  # of calls, by id
        self.running: dict[str, CallEntry] = {}  # by call id
        self._ends: set[str] = set()  # the places of calls
        self._unused = dict(enumerate(recorded.requests))
        self._progress = asyncio.Event()

    @property
    def above(self) -> list[ChatTrack]:
        """This track and those of the agents that lead here."""
        return [self] if self.parent is None else [self, *self.parent.above]

    @property
    def was_cut(self) -> bool:
        """Whether the chat was aborted when it was recorded, by itself or from above."""
        aborted = self.recorded.abort is not None
        return aborted or (self.parent is not None and not self.parent.has_ended(self.call))

    def take_request(self, shape: dict[str, Any], fields: list[str]) -> Request | None:
        """The first equal request that was not used."""
        for place, request in self._unused.items():
            if all(request.body[f] == shape[f] for f in fields):
                return self._unused.pop(place)
        return None

    def next_request(self) -> Request | None:
        """The first request that was not used."""
        return next(iter(self._unused.values()), None)

    def next_call(self, place: str) -> CallEntry | None:
        """The next run of the call at this place."""
        runs, repeats = self.recorded.calls.get(place, []), self.now.calls.get(place, [])
        return runs[len(repeats)] if len(repeats) < len(runs) else None

    def unused(self) -> list[str]:
        """What was recorded and did not happen."""
        texts = [f"request {place}" for place in self._unused]
        for place, runs in self.recorded.calls.items():
            if len(self.now.calls.get(place, [])) < len(runs):
                texts.append(f"call {place} of {runs[-1].tool}")
        return texts

    def settle(self, place: str) -> None:
        """Note that a call has ended, or has come to where it did not go on."""
        self._ends.add(place)
        self._progress.set()

    async def _others_settle(self, place: str) -> None:
        """Wait for the recorded calls of the same step."""
        step = place.partition(".")[0] + "."
        needed = {other for other in self.recorded.calls if other.startswith(step)}
        while not needed <= self._ends:
            self._progress.clear()
            await self._progress.wait()

    async def reach(self, step: int) -> None:
        """Go no further than the recorded chat, which may have been aborted before this step."""
        if not self.was_cut:
            return
        if step >= self.recorded.steps:
            await self.wait_for_abort()
        elif self.next_request() is None:  # a wrapper waits until the abort
            self.settle_above()

    async def wait_for_abort(self, place: str = "") -> None:
        """Wait in an answer, or in the call at this place, for the abort that ended the chat.

        A chat that aborted itself is aborted once all its calls have come to where they were.
        """
        if place:
            self.settle(place)
        top, levels = self.settle_above()
        for track, call in [(self, place), *levels] if place else levels:
            await track._others_settle(call)
        abort = top.recorded.abort
        if abort is not None and not abort.by_reader:
            top.run.abort(abort.reason)
        await asyncio.Event().wait()

    def settle_above(self) -> tuple[ChatTrack, list[tuple[ChatTrack, str]]]:
        """Settle the calls that lead here and did not end; return them, and the chat above."""
        top: ChatTrack = self
        levels: list[tuple[ChatTrack, str]] = []
        while top.parent is not None and not top.parent.has_ended(top.call):
            top.parent.settle(top.call)
            levels.append((top.parent, top.call))
            top = top.parent
        return top, levels

    def has_ended(self, place: str) -> bool:
        """Whether the call ended when it was recorded."""
        runs = self.recorded.calls.get(place, [])
        return not runs or runs[-1].ended


def unused(recorded: dict[str, Track], tracks: dict[str, ChatTrack]) -> Iterator[Difference]:
    """Yield for each chat what was recorded and did not happen."""
    for name in recorded:
        if name not in tracks:
            text = "the chat was recorded, but did not come to its first request"
            yield Difference(chat=name, place="request 0", text=text)
        elif missing := tracks[name].unused():
            first, more = missing[0], len(missing) - 1
            text = "it was recorded, but did not happen"
            text += f", nor did {', '.join(missing[1:])}" if more else ""
            yield Difference(chat=name, place=first, text=text)


# ── the file ────────────────────────────────────────────────────────────────────────────────


def read_cassette(path: str | os.PathLike[str]) -> dict[str, Track]:
    """Read the chats of a file by their names; raises CassetteError if it is not a cassette."""
    return read_tracks(Path(path), None)


def read_tracks(path: Path, mode: str | None) -> dict[str, Track]:
    """Read the chats of a file of this mode, or of any mode."""
    text = path.read_text(encoding="utf-8")
    try:
        value = json.loads(text)
    except ValueError as exc:
        raise CassetteError(f"cassette {str(path)!r} is not JSON ({exc}); {AGAIN}") from None
    data = cast("dict[str, Any]", value if isinstance(value, dict) else {})
    version = data.get("hookline_cassette")
    if version != FORMAT:
        raise CassetteError(
            f"cassette {str(path)!r} has format {version!r}, and this version reads {FORMAT}; "
            f"{AGAIN}"
        )
    if mode is not None and data.get("mode") != mode:
        raise CassetteError(
            f"cassette {str(path)!r} was recorded with mode={data.get('mode')!r}, not {mode!r}; "
            "use the recorded mode, or record it again"
        )
    try:
        return {name: _read_track(track) for name, track in data["chats"].items()}
    except (msgspec.ValidationError, KeyError, TypeError, AttributeError) as exc:
        raise CassetteError(f"cassette {str(path)!r} is damaged ({exc!r}); {AGAIN}") from None


def _read_track(data: dict[str, Any]) -> Track:
    track = msgspec.convert(data, Track)
    before: dict[str, Any] | None = None
    for request in track.requests:
        before = request.body = unfold(before, request.body)
    return track


def write_tracks(path: Path, mode: str, tracks: dict[str, Track]) -> None:
    """Write the file in one move, so that no reader sees a half of it."""
    chats: dict[str, Any] = {}
    for name, track in sorted(tracks.items()):
        data = msgspec.to_builtins(track)
        before: dict[str, Any] | None = None
        for request, entry in zip(track.requests, data.get("requests", ()), strict=True):
            entry["body"] = fold(before, request.body)
            before = request.body
        chats[name] = data
    lines = pretty({"hookline_cassette": FORMAT, "mode": mode, "chats": chats})
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_text("\n".join(lines) + "\n", encoding="utf-8")
    new.replace(path)


def track_name(run: Run[Any], scrub: Scrub) -> str:
    """The message of the chat, as JSON; a long one is cut and has a digest."""
    texts = [message.text for message in run.history if message.role == "user"]
    text = scrub(texts[-1]) if texts else ""
    if len(text) > NAME_LENGTH:
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        text = f"{text[:NAME_LENGTH]}… {digest}"
    return json.dumps(text, ensure_ascii=False)


def numbered(name: str, counts: defaultdict[str, int]) -> str:
    """The name, with a number from the second use on."""
    counts[name] += 1
    return name if counts[name] == 1 else f"{name} #{counts[name]}"
