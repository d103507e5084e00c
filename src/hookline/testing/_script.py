"""`ScriptedModel`: a model that plays a script and checks that the chat follows it.

Each `stream()` plays the next turn, chunk by chunk, as an adapter would: an async generator that is
closed when it is left. A mismatch with the script fails at once, and again in `done()`, because a
hook that catches every exception of a model must not hide a test failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from inspect import isawaitable
from itertools import count
from types import TracebackType
from typing import Any, Self, cast

from hookline import ModelRequest
from hookline.errors import HistoryError, HooklineError
from hookline.models import Chunk, Finish
from hookline.testing._descriptions import message_line
from hookline.testing._request_checks import validate_request
from hookline.testing._turn import Delay, ScriptTurn, Turn, as_turn


class ScriptError(HooklineError, AssertionError):
    """The chat does not match the script: a turn is missing, unused or invalid."""


class ScriptedModel:
    """A model that answers each call with the next turn of its script.

    A turn is a str (a text answer), a ToolCall, a list of these parts, a ModelResponse, a Turn, or
    an exception to raise. A turn can also be a sync or async function that takes the request and
    returns a turn. If several chats share a model, each call gets the next turn.

    `requests` has all requests, in order. `closed` and `cancelled` count the streams that were left
    before their end. `open` counts the streams that are still being read. If the model is used in
    `with`, `done()` is called at the end of the block. After an exception in the block, `done()` is
    not called. `strict=False` accepts requests in which a call has no result, or a result has no
    call. With `repeat=True`, the first turn follows the last turn. Raises ValueError for a negative
    `chunk`.
    """

    provider = "scripted"
    """The provider's name in traces."""
    takes_schema = True
    """True, so that the model gets the schema of `output=` as `request.output`."""

    def __init__(
        self,
        *turns: ScriptTurn,
        name: str = "scripted",
        chunk: int = 0,
        delay: Delay | None = None,
        strict: bool = True,
        repeat: bool = False,
    ) -> None:
        if chunk < 0:
            raise ValueError(f"chunk={chunk!r} must be at least 0")
        self.name = name
        """The model's name, in traces and in `Finish`."""
        self.requests: list[ModelRequest] = []
        self.closed = 0
        self.cancelled = 0
        self.open = 0
        self._turns = turns
        self._chunk = chunk
        self._delay = delay
        self._strict = strict
        self._repeat = repeat
        self._ids = count(1)
        self._misfit: ScriptError | HistoryError | None = None

    @property
    def calls(self) -> int:
        """The number of times that the model was called."""
        return len(self.requests)

    @property
    def last_request(self) -> ModelRequest:
        """The last request; raises ScriptError if the model was never called."""
        if not self.requests:
            raise ScriptError(f"{self!r} was never called; run the chat first")
        return self.requests[-1]

    def done(self) -> None:
        """Check that the whole script was played and that every request was valid.

        Raises ScriptError for unused turns. If a model call raised a ScriptError or HistoryError,
        `done()` raises that error a second time.
        """
        if self._misfit is not None:
            raise self._misfit
        rest = self._turns[self.calls :]
        if rest:
            raise ScriptError(
                f"{len(rest)} of {_turns(len(self._turns))} were not used; remove them, or "
                "make more model calls: "
                f"{', '.join(map(repr, rest))}; {self._last_request_text()}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: object, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.done()

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """Play the next turn; raises ScriptError if there are no more turns."""
        self.requests.append(request)
        return self._stream(request, len(self.requests) - 1)

    async def _stream(self, request: ModelRequest, index: int) -> AsyncIterator[Chunk]:
        self.open += 1
        turn: Turn | None = None
        try:
            turn = await self._turn(request, index)
            delay = self._delay if turn.delay is None else turn.delay
            for chunk in self._chunks(turn):
                if callable(delay):
                    await delay()
                elif delay is not None:
                    await asyncio.sleep(delay)
                yield cast("Chunk", chunk)
            if turn.fail is not None:
                raise turn.fail
        except GeneratorExit:
            self.closed += 1
            raise
        except asyncio.CancelledError as exc:
            if turn is None or exc is not turn.fail:
                self.cancelled += 1
            raise
        finally:
            self.open -= 1
            if turn is not None and turn.cleanup is not None:
                raise turn.cleanup

    async def _turn(self, request: ModelRequest, index: int) -> Turn:
        """Check the request, and return the turn for this call."""
        if self._strict:
            try:
                validate_request(request)
            except HistoryError as exc:
                self._misfit = self._misfit or exc
                raise
        if self._repeat and self._turns:
            index %= len(self._turns)
        if index >= len(self._turns):
            raise self._misfits(
                f"call {index + 1} of a script with {_turns(len(self._turns))}; add a turn, or "
                f"find out why the model was called again: {self._last_request_text()}"
            )
        turn: Any = self._turns[index]
        where = f"turn {index + 1}"
        if callable(turn):
            turn = turn(request)
            if isawaitable(turn):
                turn = await turn
            where = f"the return value of the callable of turn {index + 1}"
        try:
            return as_turn(turn)
        except ValueError as exc:
            raise self._misfits(f"{where} must be a turn: {exc}") from None

    def _chunks(self, turn: Turn) -> list[object]:
        """The chunks of a turn, until it fails."""
        chunks = turn.chunks(self._chunk, lambda: f"call_{next(self._ids)}", self.name)
        if turn.fail is None:
            return chunks
        if turn.fail_after is None:
            return chunks[:-1] if chunks and isinstance(chunks[-1], Finish) else chunks
        if turn.fail_after > len(chunks):
            raise self._misfits(
                f"fail_after={turn.fail_after}, but the turn has only {len(chunks)} chunks: "
                "pass chunk= to split its text into more chunks"
            )
        return chunks[: turn.fail_after]

    def _misfits(self, problem: str) -> ScriptError:
        error = ScriptError(problem)
        self._misfit = self._misfit or error
        return error

    def _last_request_text(self) -> str:
        if not self.requests:
            return "the model was never called"
        lines = "".join(f"\n  {message_line(message)}" for message in self.requests[-1].messages)
        return f"the last request was:{lines or ' (no messages)'}"

    def __repr__(self) -> str:
        return f"<ScriptedModel {self.name!r}, {self.calls} of {_turns(len(self._turns))} played>"


def _turns(number: int) -> str:
    return "1 turn" if number == 1 else f"{number} turns"
