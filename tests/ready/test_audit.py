"""`audit` and `log`: what was done is written down, whole lines at a time, without content."""

import asyncio
import json
import logging
import os
import signal
import stat
import subprocess
import sys
import textwrap

import pytest

from hookline import Agent, Approve, Ask, Conversation, Deny, tool
from hookline.errors import ChatAbortedError
from hookline.hooks import audit, log
from hookline.testing import ScriptedModel, call, collect

SECRET = "s3cret"


@tool
async def look(where: str = "") -> str:
    return f"{SECRET} seen"


@tool
async def fail() -> str:
    raise ValueError(SECRET)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def told(path):
    return [line["what"] for line in lines(path)]


def agent_of(path, *turns, **options):
    return Agent(
        ScriptedModel(*turns), name="ada", tools=[look, fail], hooks=[audit(path, **options)]
    )


# ── audit ───────────────────────────────────────────────────────────────────────────────────


async def test_a_chat_is_written_down_as_it_goes(tmp_path):
    path = tmp_path / "audit.jsonl"
    conversation = Conversation(id="talk")
    agent = agent_of(path, [call("look", where=SECRET), call("fail")], SECRET, clock=lambda: 7.0)
    response = await agent.chat(SECRET, conversation=conversation)
    first, *rest, last = told(path)
    assert (first, rest[:2], rest[-1], last) == (
        "chat started",
        ["user message", "assistant message"],
        "assistant message",
        "chat done",
    )
    assert sorted(rest[2:-1]) == sorted(["tool started", "tool finished", "tool message"] * 2)
    for line in lines(path):
        assert (line["at"], line["agent"], line["chat"], line["conversation"]) == (
            7.0,
            "ada",
            response.chat_id,
            "talk",
        )
    assert SECRET not in path.read_text()
    finished = {
        line["tool"]: line.get("error") for line in lines(path) if line["what"] == "tool finished"
    }
    assert finished == {"look": None, "fail": "ValueError"}
    assert lines(path)[-1]["tokens"] == response.usage.total_tokens


async def test_content_is_there_if_asked_for(tmp_path):
    path = tmp_path / "audit.jsonl"
    agent = agent_of(path, call("look", where="home"), "fine", content=True)
    await agent.chat("hello")
    assert [line["text"] for line in lines(path) if "text" in line] == [
        "hello",
        "",
        f"{SECRET} seen",
        "fine",
    ]
    assert [line["arguments"] for line in lines(path) if "arguments" in line] == [{"where": "home"}]


@pytest.mark.parametrize("content", [True, False])
async def test_a_refused_call_is_written_with_its_tool_arguments_and_caller(tmp_path, content):
    path = tmp_path / "audit.jsonl"
    agent = agent_of(
        path, call("look", where="home"), "no", content=content, who=lambda run: {"user": run.deps}
    )
    agent.add_hook("preToolCall", lambda ctx: Deny("not you"), tools=["look"])
    await agent.chat("hello", deps="ann")
    assert {json.dumps(line["who"]) for line in lines(path)} == {'{"user": "ann"}'}
    (refused,) = [line for line in lines(path) if line["what"] == "tool message"]
    assert (refused["tool"], refused["outcome"]) == ("look", "denied")
    assert refused.get("arguments") == ({"where": "home"} if content else None)
    (asked,) = [each for line in lines(path) for each in line.get("calls", ())]
    assert (asked["id"], asked["tool"]) == (refused["call"], "look")
    assert ("arguments" in asked) == content


async def test_aborts_and_failures_are_written_too(tmp_path):
    path = tmp_path / "audit.jsonl"
    agent = agent_of(path, ValueError(SECRET), "ok")
    with pytest.raises(ValueError, match=SECRET):
        await agent.chat("hi")
    agent.add_hook("preRequest", lambda ctx: void(ctx.run.abort("enough")))
    with pytest.raises(ChatAbortedError):
        await agent.chat("hi")
    ends = [line for line in lines(path) if line["what"].startswith("chat ") and "tokens" in line]
    assert [(line["what"], line.get("error")) for line in ends] == [
        ("chat error", "ValueError"),
        ("chat aborted", None),
    ]
    assert SECRET not in path.read_text()


def void(value):
    return None


async def test_approvals_are_written_with_their_answer_and_who_decided(tmp_path):
    path = tmp_path / "audit.jsonl"
    agent = agent_of(path, call("look"), "ok")
    agent.add_hook("preToolCall", lambda ctx: Ask("May I?"))
    conversation = Conversation()
    response = await agent.chat("hi", conversation=conversation)
    await agent.resume(conversation, {response.pending[0].id: Approve(by="lea")})
    asked, approved = (line for line in lines(path) if line["what"].startswith("approval"))
    assert (asked["what"], approved["what"]) == ("approval: asked", "approval: approve")
    assert (asked.get("by"), approved["by"]) == (None, "lea")


@pytest.mark.parametrize("content", [True, False])
async def test_an_edit_and_the_reason_of_a_denial_are_written(tmp_path, content):
    path = tmp_path / "audit.jsonl"
    calls = [call("look", where="x"), call("look", where="y")]
    agent = agent_of(path, calls, "ok", content=content)
    agent.add_hook("preToolCall", lambda ctx: Ask("May I?"))
    conversation = Conversation()
    response = await agent.chat("hi", conversation=conversation)
    first, second = response.pending
    answers = {first.id: Approve(arguments={"where": "z"}), second.id: Deny("not there", by="lea")}
    await agent.resume(conversation, answers)
    edited, denied = (
        line for line in lines(path) if line["what"] in ("approval: approve", "approval: deny")
    )
    assert edited["edited"] is True
    assert edited.get("arguments") == ({"where": "z"} if content else None)
    assert denied.get("reason") == ("not there" if content else None)
    assert "edited" not in denied
    assert denied["by"] == "lea"


async def test_a_sub_agent_is_written_down_with_its_parent(tmp_path):
    path = tmp_path / "audit.jsonl"
    kid = Agent(ScriptedModel("hi"), name="kid")
    mum = Agent(
        ScriptedModel(call("kid", input="x"), "done"),
        name="mum",
        tools=[kid.as_tool()],
        hooks=[audit(path)],
    )
    response = await mum.chat("go")
    parents = {line["agent"]: line.get("parent") for line in lines(path)}
    assert parents == {"mum": None, "kid": response.chat_id}


async def test_a_line_stands_before_the_tool_runs(tmp_path):
    path = tmp_path / "audit.jsonl"
    seen = []

    @tool(name="look")
    async def looks() -> None:
        seen.append(told(path)[-1])

    await Agent(ScriptedModel(call("look"), "ok"), tools=[looks], hooks=[audit(path)]).chat("go")
    assert seen == ["tool started"]


async def test_a_line_that_cannot_be_written_ends_the_chat_before_anything_runs(tmp_path):
    model = ScriptedModel("ok")
    agent = Agent(model, hooks=[audit(tmp_path / "no" / "such" / "folder")])
    with pytest.raises(FileNotFoundError):
        await agent.chat("hi")
    assert model.requests == []


async def test_the_file_is_appended_to_and_nobody_elses(tmp_path):
    path = tmp_path / "audit.jsonl"
    path.write_text('{"what": "before"}\n')
    await agent_of(path, "ok").chat("hi")
    assert told(path)[:2] == ["before", "chat started"]
    other = tmp_path / "new.jsonl"
    await agent_of(other, "ok").chat("hi")
    assert stat.S_IMODE(other.stat().st_mode) == 0o600


async def test_a_line_that_was_cut_stays_by_itself(tmp_path):
    path = tmp_path / "audit.jsonl"
    path.write_text('{"what": "half')
    await agent_of(path, "ok").chat("hi")
    first, *rest = path.read_text().splitlines()
    assert first == '{"what": "half'
    assert json.loads(rest[0])["what"] == "chat started"


async def test_the_file_may_be_moved_away(tmp_path):
    path = tmp_path / "audit.jsonl"
    agent = agent_of(path, "ok", "ok")
    await agent.chat("hi")
    path.rename(tmp_path / "old.jsonl")
    await agent.chat("hi")
    assert told(path) == told(tmp_path / "old.jsonl")


async def test_many_chats_at_once_write_whole_lines(tmp_path):
    path = tmp_path / "audit.jsonl"
    agent = agent_of(path, *["text\n" * 50] * 50, content=True)
    await asyncio.gather(*(agent.chat(f"line\n{n}") for n in range(50)))
    assert len(lines(path)) == 50 * 4
    assert {line["text"] for line in lines(path) if line["what"] == "user message"} == {
        f"line\n{n}" for n in range(50)
    }


WRITER = """
    import asyncio, sys
    from hookline import Agent
    from hookline.hooks import audit
    from hookline.testing import ScriptedModel

    async def main():
        agent = Agent(
            ScriptedModel(*["x" * 3000] * 100_000),
            hooks=[audit(sys.argv[1], fsync=bool(int(sys.argv[2])), content=True)],
        )
        while True:
            await asyncio.gather(*(agent.chat("hi") for _ in range(4)))
            print("round", flush=True)

    asyncio.run(main())
"""


@pytest.mark.skipif(os.name != "posix", reason="needs kill -9")
@pytest.mark.parametrize("fsync", [0, 1])
@pytest.mark.parametrize("rounds", [1, 2, 3, 5])
def test_a_kill_leaves_whole_lines_and_none_that_was_written_is_lost(tmp_path, fsync, rounds):
    path = tmp_path / "audit.jsonl"
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(path), str(fsync)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(rounds):
            assert process.stdout.readline() == "round\n"
        process.send_signal(signal.SIGKILL)
    *written, cut = path.read_bytes().split(b"\n")
    told_of = [json.loads(line)["what"] for line in written]
    assert told_of.count("chat done") >= 4 * rounds
    asyncio.run(agent_of(path, "ok").chat("hi"))
    after = path.read_bytes().split(b"\n")[:-1]
    assert after[: len(written)] == written
    assert [line for line in after if not _is_json(line)] == ([cut] if cut else [])


def _is_json(line):
    try:
        return bool(json.loads(line))
    except ValueError:
        return False


# ── log ─────────────────────────────────────────────────────────────────────────────────────


def logged(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "hookline.chats"]


async def test_the_log_has_names_and_numbers_and_no_content(caplog):
    agent = Agent(
        ScriptedModel([call("look", where=SECRET, call_id="c1")], SECRET),
        name="ada",
        tools=[look],
        hooks=[log()],
    )
    agent.add_hook("onChatStart", lambda ctx: ctx.run.status("thinking", SECRET))
    with caplog.at_level(logging.INFO, logger="hookline.chats"):
        response = await agent.chat(SECRET)
    text = "\n".join(logged(caplog))
    assert SECRET not in text
    assert f"[ada] chat {response.chat_id} started" in text
    assert "[ada] tool look(c1): ok in 0.0" in text
    assert "[ada] step 0: tool_calls, 1 calls" in text
    assert "[ada] status thinking" in text
    assert f"[ada] chat {response.chat_id}: done, {response.usage.total_tokens} tokens" in text


async def test_the_log_may_have_content_cut_short(caplog):
    agent = Agent(
        ScriptedModel([call("look", where="x" * 300)], "fine"),
        tools=[look],
        hooks=[log("hookline.chats", content=True, length=20, level=logging.DEBUG)],
    )
    with caplog.at_level(logging.DEBUG, logger="hookline.chats"):
        await agent.chat("hello")
    text = "\n".join(logged(caplog))
    assert "user: hello" in text
    assert "x" * 300 not in text
    assert "…" in text
    assert {r.levelno for r in caplog.records if r.name == "hookline.chats"} == {logging.DEBUG}


async def test_a_chat_that_fails_is_a_warning(caplog):
    agent = Agent(ScriptedModel(ValueError(SECRET)), hooks=[log()])
    with (
        caplog.at_level(logging.INFO, logger="hookline.chats"),
        pytest.raises(ValueError, match=SECRET),
    ):
        await agent.chat("hi")
    assert caplog.records[-1].levelno == logging.WARNING
    assert "error (ValueError)" in caplog.records[-1].getMessage()
    assert SECRET not in "\n".join(logged(caplog))


async def test_a_logger_that_fails_changes_nothing(caplog):
    class Broken(logging.Logger):
        def log(self, *args, **more):
            raise OSError("full")

    agent = Agent(ScriptedModel(call("look"), "ok"), tools=[look], hooks=[log(Broken("x"))])
    events = await collect(agent.chat_stream("hi"))
    assert events[-1].response.text == "ok"
