"""The client of clients/typescript against a real server: the scenes of the AI SDK and of AG-UI."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import msgspec
import pytest
from tests.web._clients import JS, need_node, run
from tests.web._scenes import SCENES, retrying, weather
from tests.web._server import conversation_of, eventually, site_of
from tests.web._typescript import CLIENT, chat, compiled
from tests.web.test_client_tools import picking
from tests.web.test_clients import _after
from tests.web.test_site import Gate, asking
from tests.web.test_steering import Work, working

from hookline import Agent, Approve, Ask, ModelResponse
from hookline.events import MessageAdded, MessageQueued
from hookline.points import OnChatAbort, OnResponse
from hookline.testing import ScriptedModel, Turn, call
from hookline.web import NativeEncoder, to_native_messages


@pytest.fixture(autouse=True)
def node() -> None:
    need_node()


def text(message: dict[str, Any]) -> str:
    if message["role"] == "tool":
        return str(message["text"])
    return "".join(part["text"] for part in message["parts"] if part["part"] == "text")


def shown(seen: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(m["id"], m["role"], text(m)) for m in seen["messages"]]


def streamed(seen: dict[str, Any]) -> list[str]:
    return [frame["text"] for frame in seen["frames"] if frame["event"] == "text_delta"]


def spoken(messages: list[tuple[str, str, str]]) -> list[str]:
    """The texts without those of tools, whose errors are masked."""
    return [text for _, role, text in messages if role != "tool"]


async def stored(site: Any) -> list[tuple[str, str, str]]:
    return [(m.id, m.role, m.text) for m in (await conversation_of(site, "c1")).messages]


# ── answers ─────────────────────────────────────────────────────────────────────────────────


async def test_text_grows_and_tools_show() -> None:
    turn = Turn(reasoning="Hm.", text="I look. ", tool_calls=[call("weather", city="Oslo")])
    agent = Agent(ScriptedModel(turn, "Sunny in Oslo.", "Bye.", chunk=2), tools=[weather])
    async with site_of(agent) as (site, url):
        seen = await chat(url, [{"send": "hi"}, {"send": "thanks"}])
        assert shown(seen) == await stored(site)
    assert seen["failures"] == []
    assert (seen["running"], seen["queued"], seen["returned"]) == (False, [], [])
    assert [m["role"] for m in seen["messages"]] == [
        *("user", "assistant", "tool", "assistant"),
        *("user", "assistant"),
    ]
    assert len(streamed(seen)) > 8
    assert seen["draft"] == {"text": "", "reasoning": ""}
    assert [part["part"] for part in seen["messages"][1]["parts"]] == ["reasoning", "text", "call"]


async def test_every_scene_ends_with_the_stored_messages() -> None:
    names = [name for name in SCENES if name != "a_stop_before_anything"]
    played = {name: await SCENES[name]() for name in names}
    given = []
    for each in played.values():
        added = {e.message.id for e in each.events if isinstance(e, MessageAdded) and not e.path}
        before = [message for message in each.after if message.id not in added]
        encoder = NativeEncoder(run="r")
        data = b"".join(map(encoder.encode, each.events)) + encoder.end()
        stream = base64.b64encode(data).decode()
        given.append({"before": to_native_messages(before), "stream": stream})
    for name, seen in zip(names, run("read_native.mjs", given, compiled()), strict=True):
        after = [(m.id, m.role, m.text) for m in played[name].after]
        assert [each[:2] for each in shown(seen)] == [each[:2] for each in after], name
        assert spoken(shown(seen)) == spoken(after), name
        failed = name in ("a_failing_model", "too_many_steps")
        assert ("error" in seen) == failed, (name, seen.get("error"))
        waits = name in ("an_approval", "a_question_of_a_sub_agent", "one_of_two_answers")
        assert bool(seen["pending"]) == waits, name
        assert seen["draft"] == {"text": "", "reasoning": ""}, name


async def test_a_withdrawn_text_is_removed() -> None:
    agent = Agent(ScriptedModel("The code is 1234.", chunk=3))

    @agent.hook("onResponse")
    def redact(ctx: OnResponse) -> ModelResponse:
        return ctx.response.replace(text="The code is ****.")

    async with site_of(agent) as (site, url):
        seen = await chat(url, [{"send": "hi"}])
        assert shown(seen) == await stored(site)
    assert text(seen["messages"][1]) == "The code is ****."
    assert "".join(streamed(seen)) == "The code is 1234.The code is ****."


async def test_an_answer_that_begins_again_is_shown_once() -> None:
    cut = Turn("The wrong", " text", fail=ConnectionError("reset"))
    async with site_of(retrying(cut, "The right text.")) as (_, url):
        seen = await chat(url, [{"send": "hi"}])
    assert text(seen["messages"][1]) == "The right text."
    assert "response_reset" in [frame["event"] for frame in seen["frames"]]


async def test_a_text_that_begins_again_replaces_what_was_shown_of_it() -> None:
    gate = Gate()
    cut = Turn("The wrong", " text", fail=ConnectionError("reset"))
    right = Turn("The right ", "text.", delay=_after(gate, 3))
    async with site_of(retrying(cut, right)) as (_, url):
        script = [{"begin": "hi"}, {"until": "right "}, {"note": True}, {"stop": True}]
        seen = await chat(url, [*script, {"ready": True}])
    assert seen["notes"] == ["The right "]


async def test_an_answer_is_made_again() -> None:
    async with site_of(Agent(ScriptedModel("One.", "Two.", "Three."))) as (site, url):
        seen = await chat(url, [{"send": "hi"}, {"send": "and?"}, {"regenerate": True}])
        assert shown(seen) == await stored(site)
        assert [text(m) for m in seen["messages"]] == ["hi", "One.", "and?", "Three."]
        unknown = await chat(url, [{"load": True}, {"regenerate": True, "messageId": "nope"}])
        assert shown(unknown) == await stored(site)
    assert unknown["failures"][0]["status"] == 409


async def test_an_error_is_a_short_sentence() -> None:
    agent = Agent(ScriptedModel(Turn("It ", fail=RuntimeError("secret"))))
    async with site_of(agent) as (site, url):
        seen = await chat(url, [{"send": "hi"}])
        assert shown(seen) == await stored(site)
    assert seen["error"]["message"].startswith("Something went wrong (error ")
    assert seen["failures"] == []
    assert text(seen["messages"][1]) == "It "


async def test_a_request_that_is_refused_says_why() -> None:
    async with site_of(Agent(ScriptedModel("Hello."))) as (_, url):
        wrong = await chat(url, [{"send": "hi"}], token="another token")
        empty = await chat(url, [{"send": " "}])
    assert [each["status"] for each in wrong["failures"]] == [401]
    assert [each["name"] for each in empty["failures"]] == ["ChatError"]
    assert empty["failures"][0]["status"] == 400
    assert not empty["failures"][0]["message"].startswith("{")
    assert (empty["queued"], empty["running"]) == ([], False)


# ── stopping, leaving and resuming ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("on_disconnect", ["cancel", "detach"])
async def test_stop_ends_the_answer(on_disconnect: str) -> None:
    gate = Gate()
    agent = Agent(ScriptedModel(Turn("Hello, ", "Ada.", delay=_after(gate, 1))))
    reasons: list[Any] = []

    @agent.hook("onChatAbort")
    def aborted(ctx: OnChatAbort) -> None:
        reasons.append(ctx.reason)

    async with site_of(agent, on_disconnect=on_disconnect) as (site, url):
        script = [{"begin": "hi"}, {"until": "Hello, "}, {"stop": True}, {"ready": True}]
        seen = await chat(url, script)
        await eventually(lambda: len(site.runs) == 0)
        assert shown(seen) == await stored(site)
    assert reasons == ["stopped by the user"]
    assert (seen["failures"], seen["running"]) == ([], False)
    assert text(seen["messages"][1]) == "Hello, "


async def test_close_leaves_a_detached_answer_running_and_load_shows_it_once() -> None:
    gate = Gate()
    turns = (
        ["I look. ", call("weather", city="Oslo")],
        Turn("Sunny ", "in Oslo.", delay=_after(gate, 1)),
    )
    agent = Agent(ScriptedModel(*turns), tools=[weather])
    async with site_of(agent, on_disconnect="detach") as (site, url):
        script = [{"begin": "hi"}, {"until": "Sunny "}, {"close": True}, {"ready": True}]
        first = await chat(url, script)
        assert (first["failures"], first["running"]) == ([], False)
        again = asyncio.create_task(chat(url, [{"load": True}]))
        await eventually(lambda: len(site.runs._live["owner/c1"].log.readers) == 1, 20)
        gate.open.set()
        seen = await again
        assert shown(seen) == await stored(site)
    assert [text(m) for m in seen["messages"] if m["role"] == "assistant"] == [
        "I look. ",
        "Sunny in Oslo.",
    ]


@pytest.mark.parametrize("cuts", [[3], [1, 4, 2], [7, 1]], ids=str)
async def test_a_lost_connection_is_taken_up_again(cuts: list[int]) -> None:
    turn = Turn(text="I look. ", tool_calls=[call("weather", city="Oslo")])
    agent = Agent(ScriptedModel(turn, "Sunny in Oslo.", chunk=2), tools=[weather])
    async with site_of(agent, on_disconnect="detach") as (site, url):
        seen = await chat(url, [{"send": "hi"}], cuts=cuts)
        assert shown(seen) == await stored(site)
    assert (seen["failures"], seen["running"]) == ([], False)
    assert seen["paths"].count("/native") == 1  # the message was sent once
    assert seen["paths"][1] == "/native/c1/messages"


async def test_nothing_to_resume_is_no_error() -> None:
    async with site_of(Agent(ScriptedModel()), on_disconnect="detach") as (_, url):
        seen = await chat(url, [{"load": True}])
    assert (seen["failures"], seen["messages"], seen["running"]) == ([], [], False)


async def test_a_message_that_is_sent_while_the_messages_load_is_a_message_of_its_own() -> None:
    async with site_of(Agent(ScriptedModel("One.", "Two."))) as (site, url):
        await chat(url, [{"send": "hi"}])
        seen = await chat(url, [{"loading": True}, {"send": "and?"}])
        assert shown(seen) == await stored(site)
    assert [text(m) for m in seen["messages"]] == ["hi", "One.", "and?", "Two."]


# ── approvals ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("reloaded", [True, False])
async def test_an_approval_goes_there_and_back(approved: bool, reloaded: bool) -> None:
    agent, paid = asking()
    answer: dict[str, Any] = {"approved": approved, **({} if approved else {"reason": "no"})}
    async with site_of(agent) as (site, url):
        script: list[Any] = [{"send": "pay"}]
        if reloaded:
            waiting = await chat(url, script)
            assert waiting["prompts"] == ["Pay?"]
            script = [{"load": True}]
        seen = await chat(url, [*script, {"answer": answer}])
        assert shown(seen) == await stored(site)
    assert (seen["failures"], seen["pending"]) == ([], [])
    assert paid == (["Ada"] if approved else [])
    assert text(seen["messages"][-1]) == "That is done."


async def test_a_question_has_its_details_whose_hidden_marks_are_shown_as_numbers() -> None:
    agent, _ = asking()
    details = {"kind": "diff", "text": "-old\n+new\u202e\n"}
    agent.add_hook("preToolCall", lambda ctx: Ask("Sure?", details=details), priority=1)
    async with site_of(agent) as (_, url):
        seen = await chat(url, [{"send": "pay"}])
    assert [request["details"] for request in seen["pending"]] == [[details, None]]
    [shown_details] = seen["details"]
    assert r"+new\u{202e}" in shown_details


@pytest.mark.parametrize("reloaded", [True, False])
async def test_a_question_that_somebody_else_has_answered_is_not_shown(reloaded: bool) -> None:
    gate = Gate()
    turns = [call("pay", to="Ada", amount=1.0)], Turn("That ", "is done.", delay=_after(gate, 1))
    agent, paid = asking(*turns, approver=lambda request, run: Approve())
    async with site_of(agent, on_disconnect="detach") as (_, url):
        script = [{"until": "That "}, {"close": True}]
        seen = await chat(url, [{"begin": "pay"}, *script])
        if reloaded:
            seen = await chat(url, [{"loading": True}, *script])
        gate.open.set()
    assert "approval_requested" in [frame["event"] for frame in seen["frames"]]
    assert (seen["running"], seen["pending"], paid) == (True, [], ["Ada"])


async def test_arguments_can_be_edited() -> None:
    agent, paid = asking()
    edited = {"approved": True, "arguments": {"to": "Bob", "amount": 1}}
    async with site_of(agent) as (_, url):
        seen = await chat(url, [{"send": "pay"}, {"answer": edited}])
    assert (seen["failures"], paid) == ([], ["Bob"])


@pytest.mark.parametrize(
    ("step", "status"),
    [
        ({"answer": {"approved": True}, "id": "made-up"}, 409),
        ({"answer": {"approved": "true"}}, 400),
        ({"answer": {"yes": True}}, 400),
    ],
    ids=str,
)
async def test_an_answer_that_is_refused_runs_nothing_and_the_call_still_waits(
    step: dict[str, Any], status: int
) -> None:
    agent, paid = asking()
    async with site_of(agent) as (site, url):
        seen = await chat(url, [{"send": "pay"}, step])
        assert len((await conversation_of(site, "c1")).pending) == 1
    assert paid == []
    assert [each["status"] for each in seen["failures"]] == [status]
    assert seen["prompts"] == ["Pay?"]


async def test_hidden_marks_of_a_prompt_are_shown_as_numbers() -> None:
    agent, _ = asking([call("pay", to="Ada\u202e", amount=10.0)], "Done.")
    async with site_of(agent) as (_, url):
        seen = await chat(url, [{"send": "pay"}])
    [request] = seen["pending"]
    assert request["call"]["arguments"]["to"] == "Ada\u202e"
    assert seen["arguments"] == ['{"to":"Ada\\u{202e}","amount":10}']


# ── client tools ────────────────────────────────────────────────────────────────────────────


async def test_a_client_tool_runs_and_the_answer_goes_on() -> None:
    async with site_of(picking()) as (site, url):
        seen = await chat(url, [{"send": "hi"}], tools={"pick_file": "cat.png"})
        assert shown(seen) == await stored(site)
    assert (seen["failures"], seen["calls"]) == ([], [])
    assert seen["ran"] == [{"kind": "png"}]
    assert text(seen["messages"][-1]) == "You picked cat.png."


async def test_a_client_tool_that_fails_says_why() -> None:
    async with site_of(picking()) as (site, url):
        seen = await chat(url, [{"send": "hi"}], tools={"pick_file": {"throw": "closed"}})
        assert shown(seen) == await stored(site)
    [result] = [m for m in seen["messages"] if m.get("call_id") == "p1"]
    assert result["outcome"] == "error"
    assert "closed" in result["text"]


async def test_a_call_without_a_tool_here_waits_for_its_result() -> None:
    async with site_of(picking()) as (_, url):
        waiting = await chat(url, [{"send": "hi"}])
        assert [each["id"] for each in waiting["calls"]] == ["p1"]
        given = {"p1": {"value": "dog.png"}}
        seen = await chat(url, [{"load": True}, {"resolve": given}, {"resolve": given}])
    assert text(seen["messages"][-1]) == "You picked dog.png."
    assert [each["status"] for each in seen["failures"]] == [409]  # the second result


# ── messages into a running answer ──────────────────────────────────────────────────────────


async def steered(*texts: str, when: str = "next") -> tuple[Any, Any]:
    """Send messages while a tool runs; gives what the client has, and what is stored."""
    work = Work()
    agent = working(work, 1, "Done.", "And done.")

    async def end_when_queued() -> None:
        queued = agent.subscribe(MessageQueued)
        for _ in texts:
            await anext(queued)
        work.end()

    ends = asyncio.create_task(end_when_queued())
    async with site_of(agent, on_disconnect="detach") as (site, url):
        sends = [{"send": text, "options": {"when": when}} for text in texts]
        script = [{"begin": "hi"}, {"frame": "tool_call_started"}, *sends, {"ready": True}]
        seen = await chat(url, script)
        await ends
        return seen, await stored(site)


@pytest.mark.parametrize("when", ["next", "idle"])
async def test_a_message_is_sent_into_the_answer_and_stands_in_its_place(when: str) -> None:
    seen, kept = await steered("Only trains.", "By day.", when=when)
    assert shown(seen) == kept
    assert (seen["failures"], seen["queued"], seen["returned"]) == ([], [], [])
    own = [text(m) for m in seen["messages"] if m["role"] == "user"]
    assert own == ["hi", "Only trains.", "By day."]
    assert seen["paths"].count("/native") == 1


async def test_a_message_that_a_hook_refuses_is_returned_with_the_reason() -> None:
    seen, kept = await steered("forbidden")
    assert shown(seen) == kept
    assert (seen["failures"], seen["queued"]) == ([], [])
    [returned] = seen["returned"]
    assert (text(returned["message"]), returned["reason"]) == ("forbidden", "not this")


# ── the file itself ─────────────────────────────────────────────────────────────────────────


def test_the_client_stays_small_and_has_no_dependencies() -> None:
    package = msgspec.json.decode((CLIENT / "package.json").read_bytes())
    assert "dependencies" not in package
    lines = (CLIENT / "src" / "client.ts").read_text().splitlines()
    assert len(lines) <= 400


def test_the_compiler_is_the_one_that_the_package_asks_for() -> None:
    package = msgspec.json.decode((CLIENT / "package.json").read_bytes())
    tests = msgspec.json.decode((JS / "package.json").read_bytes())
    wanted = package["devDependencies"]["typescript"]
    assert wanted == tests["dependencies"]["typescript"]
