"""scripts/dev/faults can fail: each of its looks is shown something broken, and says so.

Where it is possible the broken thing is hookline itself, with a few lines of it put out of action.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hookline import (
    AssistantMessage,
    Conversation,
    MemoryStore,
    Text,
    ToolCall,
    ToolFailure,
    ToolMessage,
    UserMessage,
)
from hookline._chat import approval as _approval
from hookline._chat import ending as _ending
from hookline._chat import stream as _stream
from hookline._conversations.state import ConversationState
from hookline.otel._emit import spans as _spans
from hookline.providers._adapter import streaming as _frame
from hookline.storage import Change
from hookline.stores import SQLStore

from . import _killing
from ._checkpoints import CountingLoop
from .faults import (
    __main__,
    cancel,
    invariants,
    kill,
    mutants,
    rules,
    services,
    soak,
    sockets,
    streams,
    throw,
)
from .faults.figures import Budget, Figure, Findings, percentiles, tries

USER = UserMessage(id="u", parts=(Text("hi"),))


def asks(*ids: str) -> AssistantMessage:
    parts = tuple(ToolCall(id=id, name="look") for id in ids)
    return AssistantMessage(id="a", parts=parts, finish_reason="tool_calls")


def result(id: str) -> ToolMessage:
    return ToolMessage(id=f"r{id}", call_id=id, name="look", text="found")


# ── the looks ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("messages", "count"),
    [
        ([USER, asks("1", "2"), result("1"), result("2"), USER], 0),
        ([USER, asks("1", "2"), result("2"), result("1")], 0),
        ([], 0),
        ([USER, asks("1", "2"), result("1")], 1),
        ([USER, asks("1"), USER, result("1")], 2),
        ([USER, asks("1"), result("1"), result("1")], 1),
        ([USER, result("1")], 1),
        ([USER, asks("1"), result("2")], 2),
        ([USER, asks("1"), asks("1"), result("1")], 1),
    ],
    ids=["whole", "any order", "empty", "no result", "too late", "twice", "no call", "foreign",
         "of an earlier call"],
)  # fmt: skip
def test_orphans_are_counted(messages: list[Any], count: int) -> None:
    assert invariants.orphans(messages) == count


@pytest.mark.parametrize("outcome", ["done", "aborted", "error"])
def test_one_outcome_is_one(outcome: str) -> None:
    whole = ["start", outcome, f"end {outcome}"]
    assert invariants.one_outcome([])
    assert invariants.one_outcome(whole)
    for broken in (
        ["start"], whole[:2], whole[1:], [whole[0], whole[2]], [*whole, whole[2]],
        ["start", outcome, *whole[1:]], ["start", outcome, "end other"], whole[::-1],
    ):  # fmt: skip
        assert not invariants.one_outcome(broken), broken


def test_spans_that_stay_open_or_outlive_their_parent_are_counted() -> None:
    spans = invariants.Spans()
    tracer = spans.telemetry._tracers.get_tracer("test")  # type: ignore[union-attr]
    with tracer.start_as_current_span("parent"):
        tracer.start_span("child").end()
    assert spans.take() == (0, 0)
    tracer.start_span("never ended")
    assert spans.take() == (1, 0)
    with tracer.start_as_current_span("parent"):
        child = tracer.start_span("child")
    child.end()
    assert spans.take() == (0, 1)
    assert spans.take() == (0, 0)


@pytest.mark.parametrize(
    ("figure", "ok"),
    [
        (Figure("p", "w", 0, most=0), True),
        (Figure("p", "w", 1, most=0), False),
        (Figure("p", "w", float("nan"), most=0), False),
        (Figure("p", "w", 7), None),
        (tries("p", "w", 0), False),
        (tries("p", "w", 9, 10), False),
        (tries("p", "w", 10, 10), True),
    ],
    ids=["zero", "one", "not a number", "free", "no tries", "too few", "enough"],
)
def test_a_figure_knows_whether_it_holds(figure: Figure, ok: bool | None) -> None:
    assert figure.ok is ok


# ── cancel ──────────────────────────────────────────────────────────────────────────────────


def swept(points: range) -> dict[str, int]:
    """What the sweep finds at some checkpoints of its first way."""
    with asyncio.Runner(loop_factory=CountingLoop) as runner, invariants.listening() as said:
        loop = runner.get_loop()
        assert isinstance(loop, CountingLoop)
        sweep = cancel.Sweep(loop, said)

        async def run() -> None:
            for at in points:
                await sweep.one(cancel.FIRST, at)

        runner.run(run())
    return {name: count for name, count in sweep.findings.counts.items() if count}


def test_the_sweep_finds_nothing_in_what_is_whole() -> None:
    assert swept(range(40, 60)) == {}


def test_the_sweep_finds_calls_that_nobody_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ending, "_open_batch", lambda chat: None)
    found = swept(range(40, 60))
    assert found[invariants.ORPHANS] > 0
    assert found[invariants.REST] > 0


def test_the_sweep_finds_spans_that_nobody_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_spans.Operation, "finish", lambda self, *rest: 0.0)
    assert swept(range(40, 42))[invariants.SPANS] > 0


def test_the_sweep_finds_a_chat_that_is_ended_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    once = _ending._observe

    async def twice(*given: Any) -> None:
        await once(*given)
        await once(*given)

    monkeypatch.setattr(_ending, "_observe", twice)
    assert swept(range(40, 42))[invariants.ONE] == 2


def test_the_sweep_finds_a_task_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    observe = _ending._observe

    async def leaving(*given: Any) -> None:
        leaving.task = asyncio.create_task(asyncio.Event().wait())  # type: ignore[attr-defined]
        await observe(*given)

    monkeypatch.setattr(_ending, "_observe", leaving)
    assert swept(range(40, 42))[invariants.TASKS] > 0


def test_the_sweep_finds_a_reader_that_is_told_something_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def leave(stream: Any, reason: str) -> None:
        raise OSError("not the cancellation")

    monkeypatch.setattr(_stream.ChatStream, "_leave", leave)
    assert swept(range(40, 42))[cancel.RAISED] == 2


# ── rules that must never be broken ─────────────────────────────────────────────────────────


def rules_broken() -> set[str]:
    found = rules.figures(Budget(0.01, seed=0))
    return {figure.what for figure in found if figure.ok is False}


def test_the_rules_hold() -> None:
    assert rules_broken() == set()


def test_a_refused_call_that_runs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules.Policy, "check", lambda self, ctx: None)
    assert rules.RAN in rules_broken()


def test_an_allowed_call_that_does_not_run_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules.Policy, "check", lambda self, ctx: ToolFailure("no"))
    assert rules.NOT_ONCE in rules_broken()


def test_a_seal_that_is_not_compared_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_approval, "digest_of", lambda *args: "the same for all")
    assert rules.SEALS in rules_broken()


def test_a_write_that_nothing_fences_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unfenced(MemoryStore):
        async def append(self, conversation_id: str, change: Change, /) -> int:
            entry = self._entries[conversation_id]
            held = change.__class__(
                owner=entry.owner or "",
                expected=entry.version,
                place=change.place,
                messages=change.messages,
            )
            return await super().append(conversation_id, held)

    monkeypatch.setattr(rules, "MemoryStore", Unfenced)
    assert rules.FENCES in rules_broken()


def test_a_buffer_beyond_its_bound_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "BOUND", 2)
    assert rules.BOUNDS in rules_broken()


def test_a_short_run_makes_one_whole_sweep() -> None:
    budget = Budget(0.01, seed=0)
    found = {figure.what: figure for figure in cancel.figures(budget)}
    assert all(figure.ok for figure in found.values())
    points = found["chats ended, once each at every checkpoint"]
    assert points.value > 90
    assert points.note == "in 1 of 13 ways"


# ── throw ───────────────────────────────────────────────────────────────────────────────────


def broken(places: throw.Places) -> dict[str, int]:
    return {name: count for name, count in places.findings.counts.items() if count}


async def test_another_exception_at_the_caller_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    last = _stream.ChatStream._end

    def wrapped(stream: Any) -> Any:
        try:
            return last(stream)
        except throw.Fault as exc:
            raise RuntimeError("wrapped") from exc

    monkeypatch.setattr(_stream.ChatStream, "_end", wrapped)
    places = throw.Places()
    await throw.in_models(places)
    assert broken(places)[throw.CALLER] == places.tried["model"]


async def test_nothing_is_found_in_models_and_stores_that_fail() -> None:
    places = throw.Places()
    with invariants.listening():
        await throw.in_models(places)
        await throw.in_stores(places)
    assert broken(places) == {}
    assert places.tried["model"] >= 8
    assert places.tried["store"] >= 10


async def test_another_outcome_than_promised_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throw, "promised", lambda place: throw.Promise(True, "done"))
    places = throw.Places()
    await throw.in_models(places)
    assert broken(places)[throw.OUTCOME] == places.tried["model"]


async def test_a_conversation_that_stays_busy_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConversationState, "release", lambda state, chat_id: None)
    places = throw.Places()
    await throw.in_models(places)
    found = broken(places)
    assert found[throw.NEXT] == found[invariants.REST] == places.tried["model"]


async def test_an_error_of_a_provider_outside_of_the_tree_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_frame, "failure", lambda exchange, exc: OSError("raw"))
    with pytest.raises(OSError, match="raw"):
        await services.one("openai", services.Wire(status=500))


# ── kill ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("ids", "written", "ran", "name"),
    [
        (["1", "2", "3"], ["1", "2"], ["c", "d"], None),
        (["1", "3"], ["1", "2"], [], "lost"),
        (["1", "2", "2"], ["1", "2"], [], "doubled"),
        (["2", "1"], ["1", "2"], [], "reordered"),
        (["1"], ["1"], ["c", "c"], "ran twice"),
    ],
    ids=["whole", "lost", "doubled", "reordered", "ran twice"],
)
def test_damage_is_counted(
    ids: list[str], written: list[str], ran: list[str], name: str | None
) -> None:
    found = _killing.damage(ids, written, ran)
    assert {each for each, count in found.items() if count} == ({name} if name else set())


async def test_a_message_that_is_lost_in_the_store_is_found(tmp_path: Path) -> None:
    file = tmp_path / "chats.db"
    url = f"sqlite:///{file}"
    async with SQLStore(url) as store:
        talk = Conversation([USER, AssistantMessage(id="a", parts=(Text("ho"),))], id="talk")
        await talk.save(store)
    for id in ("u", "a"):
        _killing.note(tmp_path / "talk.written", id)
    await _killing.look_at(url, "talk", "one", tmp_path)  # whole, and it goes on
    with sqlite3.connect(file) as connection:
        (table,) = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE '%message%'"
        ).fetchone()
        connection.execute(f"DELETE FROM {table} WHERE seq = (SELECT max(seq) FROM {table})")
        connection.execute("UPDATE hookline_conversation SET messages = 0")  # it does not notice
    connection.close()
    with pytest.raises(AssertionError, match="lost"):
        await _killing.look_at(url, "talk", "two", tmp_path)
    found = {figure.what: figure for figure in kill.damaged("SQLite", tmp_path)}
    assert found["SQLite: messages lost"].ok is False
    assert found["SQLite: messages doubled"].ok is True


def test_processes_that_cannot_be_shot_are_a_failure(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/no/such/place.db"
    (figure,) = kill.shot("SQLite", url, tmp_path, 1.0, Budget(1.0, 0))
    assert figure.ok is False


# ── mutants ─────────────────────────────────────────────────────────────────────────────────


class Chats:
    """Instead of chats over mutants: each ends as it is told."""

    kind = "openai"

    def __init__(self, *endings: Any) -> None:
        self._endings = endings

    async def once(self, number: int) -> str:
        ending = self._endings[number]
        if isinstance(ending, Exception):
            raise ending
        return str(ending)


async def test_errors_outside_of_the_tree_and_broken_histories_are_counted() -> None:
    chats: Any = Chats("answered", KeyError("x"), mutants.HistoryError("orphan"), "ModelError")
    findings = Findings(mutants.OUTSIDE, mutants.HISTORIES)
    tally = await mutants.batch(chats, range(4), findings)
    assert dict(tally) == {"answered": 1, "ModelError": 1}
    assert findings.counts == {mutants.OUTSIDE: 1, mutants.HISTORIES: 1}
    assert "mutant 1" in findings.first[mutants.OUTSIDE]


@pytest.mark.filterwarnings("ignore::UserWarning")
async def test_what_an_adapter_lets_through_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_frame, "failure", lambda exchange, exc: OSError("raw"))
    chats = mutants.Fuzz("anthropic")
    findings = Findings(mutants.OUTSIDE, mutants.HISTORIES)
    await mutants.batch(chats, range(200), findings)
    await chats.aclose()
    assert findings.counts[mutants.OUTSIDE] > 0


# ── streams, sockets ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", streams.KINDS)
async def test_streams_are_opened_and_aborted(kind: str) -> None:
    found = await streams.measured(kind, 50, traced=False)
    assert [found[name] for name in (streams.TASKS, streams.MODELS, streams.ENDED)] == [0, 0, 0]


async def test_streams_that_do_not_end_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "TOO_LONG", 0.05)
    model = streams.Model("silent")
    agent: Any = streams.Agent(model)
    open_ones = [await streams.opened(agent) for _ in range(3)]

    async def closes(stream: Any) -> bool:
        return False

    with monkeypatch.context() as patch:
        patch.setattr(_stream.ChatStream, "abort", lambda stream, reason: False)
        patch.setattr(streams, "ended", closes)
        found = await streams.end(open_ones, model)
    assert found[streams.ENDED] == found[streams.MODELS] == found[streams.TASKS] == 3
    for stream in open_ones:
        await stream.aclose()


async def test_aborts_are_timed_at_the_socket() -> None:
    found = await sockets.measured(20, 0.0)
    assert found["open"] == 20
    assert found[sockets.OPEN] == found[sockets.TASKS] == 0
    assert {kind: len(taken) for kind, taken in found["taken"].items()} == {
        "a plain socket": 20, "openai": 3, "openai-chat": 3, "anthropic": 3, "google": 3
    }  # fmt: skip
    assert all(each > 0 for taken in found["taken"].values() for each in taken)


async def test_a_socket_that_stays_open_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "TOO_LONG", 0.05)
    kept: list[asyncio.StreamWriter] = []

    class Careless(sockets.Model):
        async def stream(self, request: Any, /) -> Any:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            kept.append(writer)
            while line := await reader.readline():
                yield sockets.TextChunk(line.decode())

    async with sockets.Provider() as server:
        agent: Any = sockets.Agent(Careless(server.port))
        one, two = await sockets.started(agent, 2)
        assert await sockets.one_abort(one, server) is None
        assert await sockets.all_aborted([two], server) >= 0.05
        assert server.open == 2
        await asyncio.wait([one.task, two.task])
        for writer in kept:
            writer.close()
        await invariants.gone(lambda: server.open, 5.0)


def test_percentiles() -> None:
    assert percentiles([3.0]) == (3.0, 3.0, 3.0)
    median, late, worst = percentiles([float(n) for n in range(101)])
    assert (median, late, worst) == (50.0, 99.0, 100.0)


# ── soak ────────────────────────────────────────────────────────────────────────────────────


async def test_a_soak_of_what_is_whole_finds_nothing() -> None:
    found = await soak.measured(0.5, seed=1)
    names = (soak.TASKS, soak.CHATS, soak.ENDINGS, soak.ORPHANS)
    assert [found[name] for name in names] == [0, 0, 0, 0], found["first"]


async def test_a_soak_finds_chats_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    made = soak.agent()
    made.add_hook("onChatEnd", lambda ctx: kept.append(ctx.run))
    monkeypatch.setattr(soak, "agent", lambda: made)
    found = await soak.measured(0.1, seed=1)
    assert found[soak.CHATS] == len(kept) > 0


async def test_a_soak_finds_endings_that_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_stream.ChatStream, "abort", lambda stream, reason=None: False)
    monkeypatch.setattr(soak, "FAULTS", 1.0)
    monkeypatch.setitem(soak.KINDS, "hook raises", (KeyError,))
    found = await soak.measured(0.1, seed=1)
    assert found[soak.ENDINGS] > 0
    assert found["first"] == ['hook raises: Fault("the hook\'s")']


@pytest.mark.parametrize("slope", [0, 5])
def test_growth_is_the_slope_after_warming_up(slope: int) -> None:
    """Half a MiB of warming up is left out; then it is so many KiB for a thousand chats."""
    seen = [(chats, 512 * 1024) for chats in range(0, 2_000, 100)]
    seen = [(chats, size * chats // 2_000) for chats, size in seen]
    seen += [(chats, 1024 * (512 + chats * slope // 1000)) for chats in range(2_000, 10_001, 200)]
    growth, chats = soak.growth(seen)
    assert growth == pytest.approx(slope, rel=0.05)
    assert chats == 8_000


# ── docs/reliability.md ─────────────────────────────────────────────────────────────────────

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "reliability.md").read_text()
NAMED = re.findall(r"\[`(\w+)`\]\(\.\./(tests/[\w/]+\.py)\)", PAGE)


@pytest.mark.parametrize(("name", "file"), NAMED, ids=[name for name, _ in NAMED])
def test_a_test_that_the_page_names_is_there(name: str, file: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_the_page_says_of_each_part_by_which_command_it_is_printed() -> None:
    assert len(NAMED) > 20
    for part in __main__.PARTS:
        assert f"`scripts/dev/faults --only {part.NAME}`" in PAGE


# ── the command ─────────────────────────────────────────────────────────────────────────────


class Part:
    NAME = "made-up"
    TITLE = "for this test"
    WEIGHT = 1.0

    def __init__(self, *found: Figure | Exception) -> None:
        self._found = found

    def figures(self, budget: Budget) -> Iterator[Figure]:
        for each in self._found:
            if isinstance(each, Exception):
                raise each
            yield each


HOLDS = Figure("made-up", "things left", 0, most=0)
BROKEN = Figure("made-up", "things left", 1, most=0, note="first: there")


@pytest.mark.parametrize(
    ("found", "code", "says"),
    [
        ([HOLDS], 0, "1 of 1 invariants hold"),
        ([HOLDS, BROKEN], 1, "1 of 2 invariants hold"),
        ([HOLDS, OSError("no luck")], 1, "OSError: no luck"),
        ([Figure("made-up", "speed", 3)], 1, "0 of 0 invariants hold"),
    ],
    ids=["whole", "broken", "a part that fails", "nothing judged"],
)
def test_the_exit_code_tells_whether_all_hold(
    found: list[Any], code: int, says: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(__main__, "PARTS", (Part(*found),))
    assert __main__.main(["--seconds", "1", "--seed", "7"]) == code
    printed = capsys.readouterr()
    assert says in printed.out
    assert "--seed 7" in printed.out
    assert printed.err == ""  # no progress where nobody looks
    assert ("BROKEN" in printed.out) == (code == 1 and says != "0 of 0 invariants hold")


def test_json_goes_to_a_file_or_takes_the_place_of_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(__main__, "PARTS", (Part(HOLDS, BROKEN),))
    assert __main__.main(["--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert [(each["what"], each["value"], each["ok"]) for each in record["figures"]] == [
        ("things left", 0, True), ("things left", 1, False)
    ]  # fmt: skip
    file = tmp_path / "faults.json"
    __main__.main(["--json", str(file), "--seed", "9"])
    assert json.loads(file.read_text())["seed"] == 9
    assert "things left" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [["--only", "nothing"], ["--only", ","], ["--seconds", "0"], ["--seconds", "nan"], ["extra"]],
    ids=" ".join,
)
def test_what_it_does_not_know_is_refused(words: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit) as caught:
        __main__.main(words)
    assert caught.value.code == 2
    assert "usage: scripts/dev/faults" in capsys.readouterr().err


def test_parts_are_chosen_by_name() -> None:
    assert __main__.names_of("soak, Cancel") == {"soak", "cancel"}
    names = [part.NAME for part in __main__.PARTS]
    assert names == ["cancel", "throw", "rules", "kill", "mutants", "streams", "sockets", "soak"]
