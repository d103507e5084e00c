"""The real clients against a real server: `ai`'s chat and `@ag-ui/client`'s HttpAgent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.web._clients import need_node, play
from tests.web._scenes import retrying, weather
from tests.web._server import TOKEN, conversation_of, eventually, site_of
from tests.web.test_client_streams import shown_text
from tests.web.test_site import Gate, asking, gated

from hookline import Agent, Ask, AssistantMessage, ModelResponse
from hookline.points import OnChatAbort, OnResponse
from hookline.testing import ScriptedModel, Turn, call

DETAILS = {"kind": "diff", "path": "a.txt", "text": "-old\n+new\u202e\x1b\n"}
VERSIONS = pytest.mark.parametrize("version", ["ai", "ai6"])


@pytest.fixture(autouse=True)
def node() -> None:
    need_node()


async def ai(url: str, script: list[Any], version: str = "ai", **options: Any) -> Any:
    given = {"url": f"{url}/ai-sdk", "token": TOKEN, "id": "c1", "script": script}
    return await play("ai.mjs", {**given, "options": options}, version)


async def ag_ui(url: str, script: list[Any], **more: Any) -> Any:
    given = {"url": f"{url}/ag-ui", "token": TOKEN, "threadId": "c1", "script": script}
    return await play("ag_ui.mjs", {**given, **more})


def text(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


# ── the Vercel AI SDK ───────────────────────────────────────────────────────────────────────


async def test_text_grows_and_tools_show() -> None:
    turn = Turn(reasoning="Hm.", text="I look. ", tool_calls=[call("weather", city="Oslo")])
    agent = Agent(ScriptedModel(turn, "Sunny in Oslo.", chunk=2), tools=[weather])
    async with site_of(agent) as (site, url):
        seen = await ai(url, [{"send": "hi"}])
        kept = await conversation_of(site, "c1")
    assert seen["status"] == "ready"
    said, answer = seen["messages"]
    assert answer["id"] == kept.messages[1].id
    assert said["id"] == kept.messages[0].id
    assert text(answer) == "I look. Sunny in Oslo."
    growing = [length for length in seen["lengths"] if length]
    assert growing == sorted(growing)
    assert len(set(growing)) > 8
    (tool,) = [part for part in answer["parts"] if part["type"] == "tool-weather"]
    assert tool["state"] == "output-available"
    assert tool["output"] == {"city": "Oslo", "degrees": 21.5, "warning": None}
    assert answer["metadata"]["usage"]["totalTokens"] > 0


@VERSIONS
@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_goes_there_and_back(version: str, approved: bool) -> None:
    agent, paid = asking()
    async with site_of(agent) as (_, url):
        script = [{"send": "pay"}, {"answer": approved, "reason": "no"}]
        seen = await ai(url, script, version, automatic=True)
    assert seen["status"] == "ready", seen
    assert paid == (["Ada"] if approved else [])
    assert [m["role"] for m in seen["messages"]] == ["user", "assistant"]  # one, not two
    (tool,) = [part for part in seen["messages"][1]["parts"] if part["type"] == "tool-pay"]
    assert tool["state"] == ("output-available" if approved else "output-denied")
    assert text(seen["messages"][1]) == "That is done."


@VERSIONS
async def test_a_question_and_its_details_come_with_the_call(version: str) -> None:
    """Live, and after a reload; the details are the server's, whatever they contain."""
    agent, paid = asking()
    agent.add_hook("preToolCall", lambda ctx: Ask("Sure?", details=DETAILS), priority=1)
    questions = {"c1": [{"prompt": "Sure?", "details": DETAILS}, {"prompt": "Pay?"}]}
    async with site_of(agent) as (_, url):
        live = await ai(url, [{"send": "pay"}], version)
        assert live["messages"][-1]["metadata"]["questions"] == questions
        script = [{"load": True}, {"answer": True}]
        loaded = await ai(url, [{"load": True}], version)
        assert loaded["messages"][-1]["metadata"]["questions"] == questions
        seen = await ai(url, script, version, automatic=True)
    assert (seen["valid"], seen["status"], paid) == (None, "ready", ["Ada"])


async def test_stop_ends_the_run() -> None:
    gate = Gate()
    agent = Agent(ScriptedModel(Turn("Hello, ", "Ada.", delay=_after(gate, 1))))
    reasons: list[Any] = []
    agent.add_hook("onChatAbort", lambda ctx: reasons.append(ctx.reason))
    async with site_of(agent) as (site, url):
        script = [{"begin": "hi"}, {"until": "Hello, "}, {"stop": True}, {"ready": True}]
        seen = await ai(url, script)
        await eventually(lambda: len(site.runs) == 0)
        kept = await conversation_of(site, "c1")
    assert reasons == ["client left"]
    assert text(seen["messages"][1]) == "Hello, "
    last = kept.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.text, last.partial) == ("Hello, ", True)


def _after(gate: Gate, pieces: int) -> Any:
    """A delay that lets the first pieces through."""
    count = 0

    async def delay() -> None:
        nonlocal count
        count += 1
        if count > pieces:
            await gate()

    return delay


async def test_the_stop_endpoint_ends_a_detached_run() -> None:
    gate = Gate()
    agent = Agent(ScriptedModel(Turn("Hello, ", "Ada.", delay=_after(gate, 1))))
    reasons: list[Any] = []

    @agent.hook("onChatAbort")
    def aborted(ctx: OnChatAbort) -> None:
        reasons.append(ctx.reason)

    async with site_of(agent, on_disconnect="detach") as (site, url):
        script = [{"begin": "hi"}, {"until": "Hello, "}, {"post": "/c1/stop"}, {"ready": True}]
        seen = await ai(url, script)
        await eventually(lambda: len(site.runs) == 0)
    assert reasons == ["stopped by the user"]
    assert seen["status"] == "ready"
    assert text(seen["messages"][1]) == "Hello, "


@VERSIONS
async def test_a_reload_in_mid_stream_shows_the_answer_once(version: str) -> None:
    gate = Gate()
    turns = (
        ["I look. ", call("weather", city="Oslo")],
        Turn("Sunny ", "in Oslo.", delay=_after(gate, 1)),
    )
    agent = Agent(ScriptedModel(*turns), tools=[weather])
    async with site_of(agent, on_disconnect="detach") as (site, url):
        first = await ai(url, [{"begin": "hi"}, {"until": "Sunny "}], version)
        assert text(first["messages"][1]) == "I look. Sunny "
        again = asyncio.create_task(ai(url, [{"load": True}, {"resume": True}], version))
        await eventually(lambda: len(site.runs._live["owner/c1"].log.readers) == 1, 20)
        gate.open.set()
        seen = await again
        kept = await conversation_of(site, "c1")
    assert [m["role"] for m in seen["messages"]] == ["user", "assistant"]
    assert text(seen["messages"][1]) == "I look. Sunny in Oslo."
    assert seen["messages"][1]["id"] == kept.messages[1].id


async def test_nothing_to_resume_is_no_error() -> None:
    async with site_of(Agent(ScriptedModel()), on_disconnect="detach") as (_, url):
        seen = await ai(url, [{"resume": True}])
    assert (seen["status"], seen["errors"]) == ("ready", [])


async def test_an_answer_is_made_again() -> None:
    async with site_of(Agent(ScriptedModel("One.", "Two."))) as (site, url):
        seen = await ai(url, [{"send": "hi"}, {"regenerate": True}])
        kept = await conversation_of(site, "c1")
    assert [text(m) for m in seen["messages"]] == ["hi", "Two."]
    assert [m.text for m in kept.messages] == ["hi", "Two."]


async def test_an_error_is_a_short_sentence() -> None:
    agent = Agent(ScriptedModel(Turn("It ", fail=RuntimeError("secret"))))
    async with site_of(agent) as (_, url):
        seen = await ai(url, [{"send": "hi"}])
    assert seen["status"] == "error"
    assert seen["error"].startswith("Something went wrong (error ")
    assert text(seen["messages"][1]) == "It "


@pytest.mark.parametrize(
    ("forge", "why"),
    [
        ({"input": {"to": "Mallory", "amount": 1000}}, "other arguments"),
        ({"toolCallId": "c9"}, "another call"),
        ({"approval": {"id": "made-up", "approved": True}}, "not waiting"),
    ],
)
async def test_a_forged_approval_runs_nothing(forge: dict[str, Any], why: str) -> None:
    agent, paid = asking()
    full = {"state": "approval-responded", **forge}
    async with site_of(agent) as (site, url):
        first = await ai(url, [{"send": "pay"}])
        (part,) = [p for p in first["messages"][1]["parts"] if "approval" in p]
        full.setdefault("approval", {"id": part["approval"]["id"], "approved": True})
        script = [{"load": True}, {"forge": full}, {"resend": True}]
        seen = await ai(url, script)
        assert paid == []
        assert len((await conversation_of(site, "c1")).pending) == 1
    assert why in seen["error"]


async def test_a_rewritten_answer_is_never_shown_as_it_was() -> None:
    agent = Agent(ScriptedModel("The code is 1234.", chunk=3))

    @agent.hook("onResponse")
    def redact(ctx: OnResponse) -> ModelResponse:
        return ctx.response.replace(text="The code is ****.")

    async with site_of(agent) as (_, url):  # version 6: the answer waits for its hooks
        seen = await ai(url, [{"send": "hi"}], "ai6")
        assert text(seen["messages"][1]) == "The code is ****."
        assert len(set(seen["lengths"])) <= 2


@VERSIONS
async def test_an_answer_that_is_begun_anew_marks_what_it_takes_back(version: str) -> None:
    cut = Turn("The wrong", " text", fail=ConnectionError("reset"))
    async with site_of(retrying(cut, "The right text.")) as (_, url):
        seen = await ai(url, [{"send": "hi"}], version)
    assert shown_text(seen["messages"][1]) == "The right text."


async def test_version_7_shows_an_answer_at_once_and_takes_it_back() -> None:
    agent = Agent(ScriptedModel("The code is 1234.", chunk=3))

    @agent.hook("onResponse")
    def redact(ctx: OnResponse) -> ModelResponse:
        return ctx.response.replace(text="Code: ****.")

    async with site_of(agent, ai_sdk_version=7) as (_, url):
        seen = await ai(url, [{"send": "hi"}])
    assert text(seen["messages"][1]) == "Code: ****."
    assert seen["lengths"].index(17) < len(seen["lengths"]) - 1 > 4


# ── AG-UI ───────────────────────────────────────────────────────────────────────────────────


async def test_ag_ui_text_grows_and_tools_show() -> None:
    turn = Turn(reasoning="Hm.", text="I look. ", tool_calls=[call("weather", city="Oslo")])
    agent = Agent(ScriptedModel(turn, "Sunny in Oslo.", "Bye.", chunk=2), tools=[weather])
    async with site_of(agent) as (site, url):
        seen = await ag_ui(url, [{"send": "hi"}, {"send": "thanks"}])
        kept = await conversation_of(site, "c1")
    assert seen["runs"] == ["resolved", "resolved"]
    assert seen["warnings"] == []
    assert max(seen["lengths"]) > 8
    shown = [(m["id"], m["role"], m.get("content")) for m in seen["messages"]]
    spoken = [each for each in shown if each[1] != "reasoning"]
    assert spoken == [(m.id, m.role, m.text) for m in kept.messages]
    assert [each[2] for each in shown if each[1] == "reasoning"] == ["Hm."]


@pytest.mark.parametrize("approved", [True, False, None])
async def test_ag_ui_approvals_go_there_and_back(approved: bool | None) -> None:
    agent, paid = asking()
    answer = {"cancel": True} if approved is None else {"answer": {"approved": approved}}
    async with site_of(agent) as (site, url):
        seen = await ag_ui(url, [{"send": "pay"}, answer])
        kept = await conversation_of(site, "c1")
    assert seen["runs"] == ["resolved", "resolved"]
    assert seen["warnings"] == []
    assert paid == (["Ada"] if approved else [])
    assert seen["pending"] == []
    shown = [(m["id"], m["role"], m.get("content")) for m in seen["messages"]]
    assert shown == [(m.id, m.role, m.text) for m in kept.messages]


async def test_ag_ui_interrupts_have_the_details_of_their_questions() -> None:
    agent, _ = asking()
    agent.add_hook("preToolCall", lambda ctx: Ask("Sure?", details=DETAILS), priority=1)
    async with site_of(agent) as (_, url):
        seen = await ag_ui(url, [{"send": "pay"}])
    (interrupt,) = seen["pending"]
    assert interrupt["message"] == "Sure?\nPay?"
    assert interrupt["metadata"] == {"hookline": {"details": [DETAILS, None]}}


async def test_ag_ui_arguments_can_be_edited() -> None:
    agent, paid = asking()
    edited = {"approved": True, "editedArgs": {"to": "Bob", "amount": 1}}
    async with site_of(agent) as (_, url):
        seen = await ag_ui(url, [{"send": "pay"}, {"answer": edited}])
    assert (seen["runs"], paid) == (["resolved", "resolved"], ["Bob"])


@pytest.mark.parametrize("answer", [{"approved": "true"}, {"yes": True}, {"approved": 1}])
async def test_ag_ui_payloads_that_fit_no_schema_run_nothing(answer: dict[str, Any]) -> None:
    agent, paid = asking()
    async with site_of(agent) as (site, url):
        seen = await ag_ui(url, [{"send": "pay"}, {"answer": answer}])
        assert len((await conversation_of(site, "c1")).pending) == 1
    assert paid == []
    assert seen["runs"][0] == "resolved"
    assert "400" in seen["runs"][1]


async def test_ag_ui_stop_ends_the_run() -> None:
    gate = Gate()
    agent = Agent(ScriptedModel(Turn("Hello, ", "Ada.", delay=_after(gate, 1))))
    reasons: list[Any] = []
    agent.add_hook("onChatAbort", lambda ctx: reasons.append(ctx.reason))
    async with site_of(agent) as (site, url):
        await ag_ui(url, [{"send": "hi", "stopAt": "Hello"}])
        await eventually(lambda: len(site.runs) == 0)
    assert reasons == ["client left"]


async def test_ag_ui_errors_and_cancelled_runs_are_told_apart() -> None:
    gate = Gate()
    agent = gated("Hello.", gate=gate)
    async with site_of(agent) as (site, url):
        running = asyncio.create_task(ag_ui(url, [{"send": "hi"}]))
        await eventually(lambda: gate.reached.is_set(), 20)
        site.runs.stop("owner/c1")
        seen = await running
    assert seen["events"][-1]["outcome"] == {"type": "cancelled"}
    failing = Agent(ScriptedModel(Turn("It ", fail=RuntimeError("secret"))))
    async with site_of(failing) as (_, url):
        seen = await ag_ui(url, [{"send": "hi"}])
    assert seen["events"][-1]["type"] == "RUN_ERROR"
    assert seen["events"][-1]["message"].startswith("Something went wrong (error ")


async def test_ag_ui_takes_a_withdrawn_text_off_the_screen() -> None:
    agent = Agent(ScriptedModel("First.", Turn(reasoning="1234", text="It is 1234."), chunk=3))

    @agent.hook("onResponse")
    def redact(ctx: OnResponse) -> ModelResponse:
        return ctx.response.replace(text=ctx.response.text.replace("1234", "****"))

    async with site_of(agent) as (site, url):
        seen = await ag_ui(url, [{"send": "hi"}, {"send": "and?"}])
        kept = await conversation_of(site, "c1")
    assert seen["runs"] == ["resolved", "resolved"]
    assert seen["warnings"] == []
    shown = [(m["role"], m["content"]) for m in seen["messages"] if m["role"] != "reasoning"]
    assert shown == [(m.role, m.text) for m in kept.messages]
    assert shown[-1] == ("assistant", "It is ****.")
