"""`cassette`: the hooks that record a chat, or replay it, innermost of all hooks.

The hooks of the agent run as always, around these. So a change of a hook shows as a changed request
or a changed call. An answer is replayed as a stream, with its chunks and its error, and each retry
has an answer of its own.
"""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from hookline import (
    HookDef,
    ModelRequest,
    ModelResponse,
    Proceed,
    Run,
    ToolCall,
    ToolFailure,
    ToolResult,
    define_hook,
)
from hookline.errors import StopChat
from hookline.points import (
    AroundRequest,
    AroundToolCall,
    OnApproval,
    OnChatAbort,
    OnChatDone,
    OnStatus,
    PreRequest,
)
from hookline.testing.cassette._calls import (
    call_difference,
    changes,
    is_same,
    place_of,
    values_of,
)
from hookline.testing.cassette._difference import (
    CassetteError,
    Difference,
    difference_of_requests,
)
from hookline.testing.cassette._hook_chats import IN_TOOL, HookChats
from hookline.testing.cassette._model import RecordedModel, RecordingModel
from hookline.testing.cassette._scrub import Scrub, scrub_data
from hookline.testing.cassette._shape import FIELDS, data_of, shape_of
from hookline.testing.cassette._tracks import (
    Abort,
    CallEntry,
    ChatTrack,
    Request,
    Track,
    numbered,
    read_tracks,
    track_name,
    unused,
    write_tracks,
)

Mode: TypeAlias = Literal["all", "model"]
"""What is on the cassette: the answers of models and the results of tools, or only the answers."""
Action: TypeAlias = Literal["auto", "record", "replay", "patch"]
"""What the cassette does; "auto" replays a file that exists, and records one that does not."""
VARIABLE: Final = "HOOKLINE_CASSETTE"
INNERMOST: Final[Any] = {"name": "cassette", "priority": -1_000_000_000, "inherit": True}
OUTERMOST: Final[Any] = {**INNERMOST, "priority": 1_000_000_000}
Result: TypeAlias = ToolResult | ToolFailure


class Cassette:
    """A recording that is made or replayed. Pass it to chats: `hooks=[tape]`."""

    def __init__(
        self,
        path: Path,
        mode: Mode,
        action: Action,
        scrub: Scrub,
        ignore: tuple[str, ...],
        hook_chats: HookChats,
    ) -> None:
        self.path = path
        """The file."""
        self.action = action
        """What the cassette does."""
        self.live_calls = 0
        """The number of model calls that reached the model."""
        self.differences: tuple[Difference, ...] = ()
        """The first difference of each chat."""
        self._mode = mode
        self._scrub = scrub
        self._fields = [field for field in FIELDS if field not in ignore]
        self._recorded = {} if action == "record" else read_tracks(path, mode)
        self._tracks: dict[str, ChatTrack] = {}  # by chat id
        self._hook_chats = hook_chats
        self._counts: defaultdict[str, int] = defaultdict(int)

    @property
    def hooks(self) -> list[HookDef]:
        """The hooks that record and replay."""
        return [
            define_hook("aroundChat", self._hook_chats.around_chat, **OUTERMOST),
            define_hook("preRequest", self._enter, **OUTERMOST),
            define_hook("preRequest", self._step, **INNERMOST),
            define_hook("aroundRequest", self._request, **INNERMOST),
            define_hook("aroundToolCall", self._call, **INNERMOST),
            define_hook("onStatus", self._status, **INNERMOST),
            define_hook("onApproval", self._question, **INNERMOST),
            define_hook("onChatAbort", self._abort, **INNERMOST),
            define_hook("onChatDone", self._stop, **INNERMOST),
        ]

    # ── tracks ──────────────────────────────────────────────────────────────────────────────

    def _track(self, run: Run[Any]) -> ChatTrack:
        if run.chat_id in self._tracks:
            return self._tracks[run.chat_id]
        parent, place = self._tracks.get(run.parent_chat_id or ""), ""
        above = self._hook_chats.parents.get(run.chat_id)
        if parent is not None:
            place = parent.places.get(run.path[-1], run.path[-1])
            name = f"{parent.name} / call {place}"
        else:
            name = track_name(run, self._scrub)
            if above is not None:  # whose track is there from its first request on
                parent = self._tracks.get(above)
                name = f"{'' if parent is None else f'{parent.name} / '}hook {name}"
        name = numbered(name, self._counts)
        recorded = self._recorded.get(name) or self._nearest(name)
        track = self._tracks[run.chat_id] = ChatTrack(name, recorded, parent, place, run)
        track.now.is_inner = parent is not None or above is not None
        return track

    def _nearest(self, name: str) -> Track:
        """The recorded chat that this one was probably, to say what differs."""
        names = {track.name for track in self._tracks.values()}
        start = name.rpartition(" / ")[0]
        others = [o for o in self._recorded if o not in names and o.rpartition(" / ")[0] == start]
        closest = [] if " / call " in name else get_close_matches(name, others, n=1, cutoff=0)
        return self._recorded[closest[0]] if closest else Track()

    def _is_live(self, track: ChatTrack) -> bool:
        return self.action == "record" or any(other.is_live for other in track.above)

    def _differ(self, track: ChatTrack, place: str, text: str) -> None:
        """Note the first difference of a chat; raise it, or go on live from here."""
        track.is_live = True
        self.differences += (Difference(chat=track.name, place=place, text=text),)
        if self.action == "replay":
            raise self.error()

    def error(self) -> CassetteError:
        """The error that names the first difference."""
        first, more = self.differences[0], len(self.differences) - 1
        text = f"{first}\n" + (f"… and {more} more chats differ\n" if more else "")
        text += f"If this is intended, record again with {VARIABLE}=patch"
        return CassetteError(text, self.differences)

    def _raise_again(self, track: ChatTrack) -> None:
        """After a difference, nothing of the chat is compared, and nothing of it runs."""
        roots = {other.above[-1] for other in self._tracks.values() if other.is_live}
        if self.action == "replay" and track.above[-1] in roots:
            raise self.error()

    # ── requests ────────────────────────────────────────────────────────────────────────────

    def _enter(self, ctx: PreRequest[Any]) -> None:
        """Name the chat before a hook begins another one for this request."""
        if not IN_TOOL.get():
            self._track(ctx.run)

    async def _step(self, ctx: PreRequest[Any]) -> None:
        if not IN_TOOL.get():
            track = self._track(ctx.run)
            if not self._is_live(track):
                await track.reach(ctx.iteration)
            track.now.steps = ctx.iteration + 1

    async def _request(
        self, ctx: AroundRequest[Any], proceed: Proceed[ModelRequest, ModelResponse]
    ) -> ModelResponse:
        if IN_TOOL.get():
            return await proceed()
        track = self._track(ctx.run)
        self._raise_again(track)
        shape = scrub_data(shape_of(ctx.request), self._scrub)
        if not self._is_live(track):
            request = track.take_request(shape, self._fields)
            if request is not None:
                track.now.requests.append(request)
                recorded = RecordedModel(ctx.request.model, request.answer, track.wait_for_abort)
                return await proceed(ctx.request.replace(model=recorded))
            if track.was_cut and track.next_request() is None:
                await track.wait_for_abort()
            place = f"request {len(track.now.requests)} (step {ctx.iteration})"
            self._differ(track, place, self._request_difference(track, shape))
        request = Request(step=ctx.iteration, body=shape)
        track.now.requests.append(request)
        self.live_calls += 1
        model = RecordingModel(ctx.request.model, request.answer, self._scrub)
        return await proceed(ctx.request.replace(model=model))

    def _request_difference(self, track: ChatTrack, shape: dict[str, Any]) -> str:
        other = track.next_request()
        if other is not None:
            return difference_of_requests(other.body, shape, self._fields)
        count = len(track.recorded.requests)
        last = json.dumps(shape["messages"][-1:], ensure_ascii=False)
        return f"it was not recorded; the cassette has {count} requests of the chat\n  {last[:200]}"

    # ── calls ───────────────────────────────────────────────────────────────────────────────

    async def _call(self, ctx: AroundToolCall[Any], proceed: Proceed[ToolCall, Result]) -> Result:
        if IN_TOOL.get():
            return await proceed()
        track = self._track(ctx.run)
        place = track.places[ctx.call.id] = place_of(ctx)
        if self._mode == "model":
            return await proceed()
        self._raise_again(track)
        call = CallEntry(
            tool=ctx.call.name,
            arguments=scrub_data(data_of(ctx.call.arguments), self._scrub),
            leads=ctx.tool.leads is not None,
        )
        if not self._is_live(track):
            recorded = track.next_call(place)
            if recorded is not None and is_same(recorded, call):
                track.now.calls.setdefault(place, []).append(recorded)
                return await self._replay(track, place, recorded, ctx, proceed)
            if recorded is None and track.was_cut:
                await track.wait_for_abort(place)
            self._differ(track, f"call {place}", call_difference(recorded, call))
        track.now.calls.setdefault(place, []).append(call)
        return await self._record(track, call, ctx, proceed)

    async def _record(
        self, track: ChatTrack, call: CallEntry, ctx: AroundToolCall[Any], proceed: Any
    ) -> Result:
        before, token = values_of(ctx.run), IN_TOOL.set(not call.leads)
        call.ended, track.running[ctx.call.id] = False, call
        try:
            result: Result = await proceed()
        finally:
            IN_TOOL.reset(token)
            del track.running[ctx.call.id]
        call.ended = True
        if not call.leads:
            call.result = scrub_data(data_of(result), self._scrub)
            call.changes = scrub_data(changes(before, values_of(ctx.run)), self._scrub)
        return result

    async def _replay(
        self, track: ChatTrack, place: str, call: CallEntry, ctx: AroundToolCall[Any], proceed: Any
    ) -> Result:
        if call.leads:
            try:
                result: Result = await proceed()
                return result
            finally:
                track.settle(place)
        for effect in call.effects:
            if "status" in effect:
                await ctx.run.status(effect["status"], effect.get("data"))
            else:
                with suppress(Exception):  # the recorded result has the refusal or the error
                    await ctx.run.ask(effect["ask"], effect.get("schema"))
        if not call.ended:
            await track.wait_for_abort(place)
        for name, values in call.changes.items():
            getattr(ctx.run, name).update(values)
        track.settle(place)
        if call.stops and call.result is not None:
            raise StopChat(call.result["value"])
        recorded: Result = msgspec.convert(call.result, Result)
        return recorded

    # ── what happens meanwhile ──────────────────────────────────────────────────────────────

    def _running(self, run: Run[Any], call_id: str) -> CallEntry | None:
        track = self._tracks.get(run.chat_id)
        return None if track is None else track.running.get(call_id)

    def _status(self, ctx: OnStatus[Any]) -> None:
        call = None if ctx.call is None else self._running(ctx.run, ctx.call.id)
        if call is not None:
            effect = {"status": ctx.type, "data": scrub_data(data_of(ctx.data), self._scrub)}
            call.effects = [*call.effects, effect]

    def _question(self, ctx: OnApproval[Any]) -> None:
        call = self._running(ctx.run, ctx.request.call.id)
        if call is not None and ctx.decision is None:
            prompt, schema = self._scrub(ctx.request.prompts[0]), data_of(ctx.request.schema)
            call.effects = [*call.effects, {"ask": prompt, "schema": schema}]

    def _abort(self, ctx: OnChatAbort[Any]) -> None:
        track = self._tracks.get(ctx.run.chat_id)
        if track is not None:
            track.now.abort = Abort(reason=ctx.reason, by_reader=ctx.by_reader)

    def _stop(self, ctx: OnChatDone[Any]) -> None:
        """Mark the calls of the last step whose tools ended the chat."""
        track = self._tracks.get(ctx.run.chat_id)
        if track is None or ctx.response.stop_reason is None or not self._is_live(track):
            return
        for place, runs in track.now.calls.items():
            result = runs[-1].result
            if place.startswith(f"{ctx.run.iteration}.") and result is not None:
                runs[-1].stops = result.get("value") == self._scrub(ctx.response.stop_reason)

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    def finish(self) -> None:
        """Write the file, or raise CassetteError for a difference or for what was not used."""
        tracks = {track.name: track for track in self._tracks.values()}
        if self.action != "replay":
            write_tracks(self.path, self._mode, {name: track.now for name, track in tracks.items()})
            return
        self.differences = self.differences or tuple(unused(self._recorded, tracks))
        if self.differences:  # which the test may have caught
            raise self.error()
