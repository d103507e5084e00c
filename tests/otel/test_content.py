"""What was said leaves the process only where somebody has asked for it, redacted and cut."""

from __future__ import annotations

import gc
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk._logs import LoggingHandler
from tests._otlp import Pipeline, Received, attributes_of, pipeline

from hookline import (
    Agent,
    Approve,
    Conversation,
    File,
    Image,
    ModelRequest,
    Scope,
    Settings,
    Text,
    ToolFailure,
    UserMessage,
)
from hookline.errors import UsageError
from hookline.hooks import approve
from hookline.otel import Telemetry
from hookline.testing import ScriptedModel, Turn, call

CANARY = "canary-7f3a9"


@pytest.fixture(params=["http/protobuf", "grpc"])
def otlp(request: pytest.FixtureRequest) -> Iterator[Pipeline]:
    with pipeline(request.param) as made:
        yield made


@pytest.fixture
def http() -> Iterator[Pipeline]:
    with pipeline() as made:
        yield made


def secret(n: int) -> str:
    return f"{CANARY}-{n:02}"


class Refused(Exception):
    pass


async def everywhere(pipeline: Pipeline, **options: Any) -> set[str]:
    """A chat with a canary, numbered, in every place that can hold one; gives their numbers.

    Prompt, system, scope context, media, tool definition, arguments (a key and a value), results,
    errors of tools, hooks and models, retries, stops, settings, state, ids that a caller chose
    freely are not among them.
    """

    def lookup(text: str) -> str:
        """Look up."""
        return secret(1)

    def broken() -> None:
        """Broken."""
        raise LookupError(secret(2))

    def refused() -> ToolFailure:
        """Refused."""
        return ToolFailure(secret(3))

    async def retry(ctx: Any, proceed: Any) -> Any:
        try:
            return await proceed()
        except ConnectionError:
            return await proceed()

    def mend(ctx: Any) -> Any:
        raise Refused(secret(4))

    model = ScriptedModel(
        Turn(secret(5), fail=ConnectionError(f"header x-api-key: {secret(6)}")),
        Turn(
            reasoning=secret(7),
            text=secret(8),
            tool_calls=[
                call("lookup", text=secret(9)),
                call("broken"),
                call("refused"),
                call("lookup", {"text": "x", secret(10): 1}),
                call(f"gone_{secret(24)}"),
            ],
        ),
        Turn(fail=PermissionError(secret(11))),
    )
    talk = Conversation(messages=[UserMessage(parts=(Text(secret(12)),))])
    agent: Agent[Any] = Agent(
        model,
        system=secret(13),
        tools=[lookup, broken, refused],
        scopes=[Scope("facts", context=lambda: secret(14))],
        settings=Settings(stop=(), extra={"headers": {"authorization": secret(15)}}),
        telemetry=pipeline.telemetry(**options),
    )
    agent.add_hook("aroundRequest", retry)
    agent.add_hook("onMessage", mend, on_error="log", name="mend")
    agent.add_hook("preToolCall", lambda ctx: None)
    said = UserMessage(
        parts=(
            Text(secret(16)),
            Image(data=secret(17).encode()),
            Image(url=f"https://example.com/{secret(18)}"),
            File(media_type="text/plain", data=secret(19).encode()),
        )
    )
    with pytest.raises(PermissionError):
        await agent.chat(said, conversation=talk, deps=secret(20), state={"x": secret(21)})
    stopped: Agent[Any] = Agent(Waiting(), telemetry=pipeline.telemetry(**options), name="aborted")
    stopped.add_hook("onDelta", lambda ctx: ctx.run.abort(secret(22)) and None)
    with pytest.raises(Exception, match=CANARY):
        await stopped.chat(secret(23))
    return numbers(pipeline.flush().raw)


class Waiting:
    """A model that says one thing."""

    name = "waiting"

    async def stream(self, request: ModelRequest, /) -> Any:
        from hookline.models import TextChunk

        yield TextChunk("x")


def numbers(raw: bytes) -> set[str]:
    pieces = raw.split(CANARY.encode())
    return {piece[1:3].decode(errors="replace") for piece in pieces[1:]}


# ── nothing by default ──────────────────────────────────────────────────────────────────────


async def test_nothing_of_what_was_said_is_in_any_byte_that_was_sent(otlp: Pipeline) -> None:
    found = await everywhere(otlp)
    assert found == set()
    received = otlp.received
    assert len(received.spans) >= 6  # there was something to search
    assert {name for name, _ in received.requests} == {"traces", "metrics", "logs"}
    assert CANARY.encode() not in received.raw


async def test_the_search_finds_what_is_there(http: Pipeline) -> None:
    """Or the test above would pass with nothing to find. What is missing here is never sent."""
    found = await everywhere(http, capture="span_and_event", history="full")
    never = {"04", "15", "17", "19", "20", "21"}  # a hook's error, a header, bytes, deps, state
    unseen = {"05"}  # what was streamed by an attempt that failed
    assert found == {f"{n:02}" for n in range(1, 25)} - never - unseen


@pytest.mark.parametrize("said", ["no_content", "NO_CONTENT", "true", "everything", ""])
async def test_only_the_four_words_of_the_variable_count(
    http: Pipeline, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", said)
    assert await everywhere(http) == set()


async def test_the_argument_counts_more_than_the_variable(
    http: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_AND_EVENT")
    assert await everywhere(http, capture="no_content") == set()


# ── what is asked for ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["argument", "variable"])
@pytest.mark.parametrize(
    ("capture", "spans", "events"),
    [
        ("span_only", True, False),
        ("event_only", False, True),
        ("span_and_event", True, True),
    ],
)
async def test_where_content_is_written(
    http: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    capture: str,
    spans: bool,
    events: bool,
) -> None:
    options: dict[str, Any] = {}
    if how == "argument":
        options["capture"] = capture
    else:
        name = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
        monkeypatch.setenv(name, capture.upper())
    await everywhere(http, **options)
    received = http.received
    assert bool(in_(received, "traces")) is spans
    assert bool(in_(received, "logs")) is events
    assert in_(received, "metrics") == set()


def in_(received: Received, signal: str) -> set[str]:
    return set().union(*[numbers(body) for name, body in received.requests if name == signal])


async def test_spans_with_content(otlp: Pipeline) -> None:
    def weather(city: str) -> dict[str, Any]:
        """The weather in a city."""
        return {"sky": "blue", "degrees": 21}

    agent = Agent(
        ScriptedModel(
            Turn(reasoning="Hm.", text="Let me see.", tool_calls=[call("weather", city="Oslo")]),
            "Blue.",
        ),
        system="Be kind.",
        tools=[weather],
        telemetry=otlp.telemetry(capture="span_only"),
    )
    await agent.chat("How is Oslo?")
    root, first, tool, second = otlp.flush().spans
    question = {"role": "user", "parts": [{"type": "text", "content": "How is Oslo?"}]}
    assert content(root, "input.messages") == [question]
    assert content(root, "output.messages") == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "Blue."}],
            "finish_reason": "stop",
        }
    ]
    assert content(first, "system_instructions") == [{"type": "text", "content": "Be kind."}]
    assert content(first, "input.messages") == [question]
    assert content(first, "output.messages") == [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "Hm."},
                {"type": "text", "content": "Let me see."},
                {
                    "type": "tool_call",
                    "id": "call_1",
                    "name": "weather",
                    "arguments": {"city": "Oslo"},
                },
            ],
            "finish_reason": "tool_call",
        }
    ]
    (definition,) = content(first, "tool.definitions")
    assert definition["type"] == "function"
    assert definition["name"] == "weather"
    assert definition["description"] == "The weather in a city."
    assert definition["parameters"]["properties"]["city"] == {"type": "string"}
    assert content(tool, "tool.call.arguments") == {"city": "Oslo"}
    assert content(tool, "tool.call.result") == {"sky": "blue", "degrees": 21}
    assert content(second, "input.messages") == [
        {
            "role": "tool",
            "parts": [
                {
                    "type": "tool_call_response",
                    "id": "call_1",
                    "response": '{"sky":"blue","degrees":21}',
                }
            ],
        }
    ]
    assert second.attributes["hookline.input.earlier_messages"] == 2
    for name in ("system_instructions", "tool.definitions"):
        assert f"gen_ai.{name}" not in second.attributes  # it was said before


def content(span: Any, name: str) -> Any:
    return json.loads(span.attributes[f"gen_ai.{name}"])


async def test_an_event_with_content_is_structured(http: Pipeline) -> None:
    agent = Agent(ScriptedModel("Blue."), telemetry=http.telemetry(capture="event_only"))
    await agent.chat("How is Oslo?")
    received = http.flush()
    (event,) = received.events
    assert event.event_name == "gen_ai.client.inference.operation.details"
    attributes = attributes_of(event.attributes)
    assert attributes["gen_ai.input.messages"] == [
        {"role": "user", "parts": [{"type": "text", "content": "How is Oslo?"}]}
    ]
    assert attributes["gen_ai.output.messages"][0]["finish_reason"] == "stop"
    assert "gen_ai.input.messages" not in received.span("chat scripted").attributes


async def test_the_text_of_an_error_where_content_is_wanted(http: Pipeline) -> None:
    def broken() -> None:
        """A tool."""
        raise LookupError("no such city")

    agent = Agent(
        ScriptedModel([call("broken")], Turn(fail=ConnectionError("reset by peer"))),
        tools=[broken],
        telemetry=http.telemetry(capture="span_and_event"),
    )
    with pytest.raises(ConnectionError):
        await agent.chat("hi")
    received = http.flush()
    texts = [span.status_text for span in received.spans]
    assert texts == ["reset by peer", "", "no such city", "reset by peer"]
    failed = [e for e in received.events if e.event_name == "gen_ai.client.operation.exception"]
    assert attributes_of(failed[0].attributes)["exception.message"] == "reset by peer"


# ── redaction ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("history", ["new", "full"])
async def test_one_function_sees_all_that_is_written(otlp: Pipeline, history: str) -> None:
    found = await everywhere(
        otlp,
        capture="span_and_event",
        redact=lambda text: text.replace(CANARY, "***"),
        history=history,
    )
    assert found == set()
    assert b"***-01" in otlp.received.raw
    assert b"***-09" in otlp.received.raw
    assert b"***-10" in otlp.received.raw  # a key
    assert b"***-06" in otlp.received.raw  # the text of an attempt that was tried again


async def test_numbers_are_redacted_too(http: Pipeline) -> None:
    def pay(card: int, cents: int) -> str:
        """Pay."""
        return "ok"

    agent = Agent(
        ScriptedModel([call("pay", card=4111111111111111, cents=5)], "ok"),
        tools=[pay],
        telemetry=http.telemetry(
            capture="span_only",
            redact=lambda text: "[card]" if text.isdecimal() and len(text) == 16 else text,
        ),
    )
    await agent.chat("hi")
    received = http.flush()
    span = received.span("execute_tool pay")
    assert content(span, "tool.call.arguments") == {"card": "[card]", "cents": 5}
    assert b"4111111111111111" not in received.raw


async def test_the_arguments_of_a_tool_are_those_with_which_it_ran(http: Pipeline) -> None:
    """Not the model's: an approver has changed them."""

    def pay(euros: int) -> str:
        """Pay."""
        return f"paid {euros}"

    agent = Agent(
        ScriptedModel([call("pay", euros=1)], "ok"),
        tools=[pay],
        hooks=[approve("pay")],
        telemetry=http.telemetry(capture="span_only"),
        approver=lambda request, run: Approve(arguments={"euros": 9}),
    )
    response = await agent.chat("hi")
    assert response.tool_results[0].text == "paid 9"
    span = http.flush().span("execute_tool pay")
    assert content(span, "tool.call.arguments") == {"euros": 9}


@pytest.mark.parametrize("kind", ["raises", "gives no text"])
async def test_what_redaction_fails_on_is_not_written(
    http: Pipeline, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(text: str) -> Any:
        if kind == "raises":
            raise ValueError(text)
        return None

    caplog.set_level(logging.DEBUG)
    assert await everywhere(http, capture="span_and_event", redact=fail) == set()
    assert b"[redaction failed]" in http.received.raw
    assert CANARY not in "".join(
        record.getMessage() for record in caplog.records if record.name == "hookline.otel"
    )


async def test_a_secret_is_redacted_before_the_text_is_cut(http: Pipeline) -> None:
    agent = Agent(
        ScriptedModel("ok"),
        telemetry=http.telemetry(
            capture="span_only", max_text=20, redact=lambda text: text.replace(CANARY, "***")
        ),
    )
    await agent.chat("x" * 15 + CANARY + "y" * 100)
    assert b"canary" not in http.flush().raw


# ── sizes ───────────────────────────────────────────────────────────────────────────────────


async def test_a_message_is_cut_and_stays_json(http: Pipeline) -> None:
    def big(text: str, rows: list[dict[str, str]]) -> list[str]:
        """A tool."""
        return ["y" * 1000] * 1000

    rows = [{"name": "z" * 50} for _ in range(200)]
    agent = Agent(
        ScriptedModel([call("big", text="x" * 5000, rows=rows)], "a" * 5000),
        tools=[big],
        telemetry=http.telemetry(capture="span_only", max_text=1000),
    )
    await agent.chat("q" * 5000)
    received = http.flush()
    for span in received.spans:
        for name, value in span.attributes.items():
            if name in CONTENT and name != "gen_ai.tool.definitions":
                assert len(value) < 2500, name
                assert json.loads(value)
    root = received.span("invoke_agent agent")
    (asked,) = content(root, "input.messages")
    assert asked["parts"][0]["content"] == "q" * 1000 + "… [4000 characters more]"
    assert "more" in content(received.span("execute_tool big"), "tool.call.arguments")["…"]


@pytest.mark.parametrize(
    "value", [["a" * 10, "x" * 5000], {"a" * 10: "y", "z" * 5000: 1}], ids=["list", "object"]
)
async def test_what_comes_when_the_room_is_almost_used_up_is_cut(
    http: Pipeline, value: Any
) -> None:
    def send() -> Any:
        """A tool."""
        return value

    agent = Agent(
        ScriptedModel([call("send")], "ok"),
        tools=[send],
        telemetry=http.telemetry(capture="span_only", max_text=17),
    )
    await agent.chat("hi")
    said = http.flush().span("execute_tool send").attributes["gen_ai.tool.call.result"]
    assert len(said) < 100


CONTENT = {
    f"gen_ai.{name}"
    for name in (
        *("system_instructions", "input.messages", "output.messages", "tool.definitions"),
        *("tool.call.arguments", "tool.call.result"),
    )
}


async def test_media_is_named_and_not_sent(http: Pipeline) -> None:
    agent = Agent(ScriptedModel("ok"), telemetry=http.telemetry(capture="span_only"))
    picture = Image(data=b"\x89PNG" + b"pixels" * 100)
    await agent.chat([Text("Look:"), picture, File(media_type="text/csv", url="https://x.y/z")])
    received = http.flush()
    (message,) = content(received.span("chat scripted"), "input.messages")
    assert message["parts"][1:] == [
        {
            "type": "omitted",
            "modality": "image",
            "mime_type": "image/png",
            "size": 604,
        },
        {
            "type": "uri",
            "modality": "document",
            "mime_type": "text/csv",
            "uri": "https://x.y/z",
        },
    ]
    assert b"pixels" not in received.raw


@pytest.mark.parametrize("history", ["new", "full"])
async def test_the_history_is_not_written_again_at_every_step(http: Pipeline, history: str) -> None:
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    turns = [[call("add", a=n, b=n)] for n in range(10)]
    talk = Conversation(messages=[UserMessage(parts=(Text(f"earlier {n}"),)) for n in range(3)])
    agent = Agent(
        ScriptedModel(*turns, "done"),
        tools=[add],
        telemetry=http.telemetry(capture="span_only", history=history),
    )
    await agent.chat("now", conversation=talk)
    spans = [span for span in http.flush().spans if span.name == "chat scripted"]
    written = [len(content(span, "input.messages")) for span in spans]
    if history == "full":
        assert written == [4 + 2 * n for n in range(11)]
    else:
        assert written == [1] * 11
        omitted = [span.attributes["hookline.input.earlier_messages"] for span in spans]
        assert omitted == [3 + 2 * n for n in range(11)]


async def test_messages_that_a_hook_wrote_are_written(http: Pipeline) -> None:
    talk = Conversation(messages=[UserMessage(parts=(Text("earlier"),))])
    agent = Agent(ScriptedModel("ok"), telemetry=http.telemetry(capture="span_only"))

    def shorten(ctx: Any) -> ModelRequest:
        summary = UserMessage(parts=(Text("a summary"),))
        return ctx.request.replace(messages=(summary, *ctx.request.messages))

    agent.add_hook("preRequest", shorten)
    await agent.chat("now", conversation=talk)
    messages = content(http.flush().span("chat scripted"), "input.messages")
    assert [m["parts"][0]["content"] for m in messages] == ["a summary", "now"]


# ── strange content ─────────────────────────────────────────────────────────────────────────


async def test_text_that_no_wire_takes_does_not_lose_the_trace(http: Pipeline) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    deep: Any = "bottom"
    for _ in range(150):
        deep = [deep]

    def odd() -> Any:
        """A tool."""
        return {"deep": deep, "lone": "\ud800", "huge": 10**400, "nul": "a\0b"}

    agent = Agent(
        ScriptedModel([call("odd")], Turn("half \ud800", fail=Odd())),
        tools=[odd],
        telemetry=http.telemetry(capture="span_and_event"),
    )
    with pytest.raises(Odd):
        await agent.chat("lone \ud800 and 😀")
    received = http.flush()
    assert len(received.spans) == 4
    assert (
        "😀"
        in content(received.span("invoke_agent agent"), "input.messages")[0]["parts"][0]["content"]
    )


@pytest.mark.parametrize("openinference", [False, True])
async def test_a_lone_surrogate_in_a_plain_text_does_not_lose_the_trace(
    http: Pipeline, openinference: bool
) -> None:
    """As in the name of a file that is not UTF-8."""

    def read() -> str:
        """A tool."""
        raise FileNotFoundError("no file \udcff.txt")

    agent = Agent(
        ScriptedModel([call("read")], "ok"),
        tools=[read],
        telemetry=http.telemetry(capture="span_and_event", openinference=openinference),
    )
    await agent.chat("read \udcff.txt")
    received = http.flush()
    assert len(received.ours) == 4
    assert "no file" in received.span("execute_tool read").status_text


async def test_each_message_that_a_hook_adds_to_a_request_is_written_once(http: Pipeline) -> None:
    """Also if the last one is gone, and the next one is made at the same place in memory."""
    model: Any = ScriptedModel(*[call("look", n=n) for n in range(9)], "ok")
    places: set[int] = set()

    def add(ctx: Any) -> ModelRequest:
        model.requests[:] = [None] * len(model.requests)  # nothing but the trace may keep one
        gc.collect()
        parts = (Text(f"note {ctx.run.iteration}"),)
        made = [UserMessage(parts=parts)]
        while places and id(made[-1]) not in places and len(made) < 10_000:
            made.append(UserMessage(parts=parts))
        places.add(id(made[-1]))
        return ctx.request.replace(messages=(*ctx.request.messages, made[-1]))

    agent = Agent(model, tools=[look], telemetry=http.telemetry(capture="span_only"))
    agent.add_hook("preRequest", add)
    await agent.chat("go")
    written = [
        part["content"]
        for span in http.flush().ours
        if span.name == "chat scripted"
        for message in content(span, "input.messages")
        for part in message["parts"]
        if part.get("content", "").startswith("note")
    ]
    assert written == [f"note {n}" for n in range(10)]


def look(n: int) -> str:
    """A tool."""
    return "seen"


# ── the arguments ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "options",
    [{"capture": "all"}, {"capture": "SPAN_ONLY"}, {"max_text": 0}, {"history": "none"}],
    ids=str,
)
def test_what_telemetry_refuses(options: Any) -> None:
    with pytest.raises(UsageError):
        Telemetry(**options)


# ── names and ids ───────────────────────────────────────────────────────────────────────────


async def test_a_failure_with_a_free_text_as_its_type_names_none(otlp: Pipeline) -> None:
    def odd() -> ToolFailure:
        """A tool."""
        return ToolFailure("no", type=f"the card {CANARY} was refused")

    def named() -> ToolFailure:
        """A tool."""
        return ToolFailure("no", type="card_refused")

    agent = Agent(
        ScriptedModel([call("odd"), call("named")], "ok"),
        tools=[odd, named],
        telemetry=otlp.telemetry(),
    )
    await agent.chat("hi")
    received = otlp.flush()
    assert received.span("execute_tool odd").attributes["error.type"] == "_OTHER"
    assert received.span("execute_tool named").attributes["error.type"] == "card_refused"
    labels = received.metrics["gen_ai.execute_tool.duration"].labels()
    assert {label["error.type"] for label in labels} == {"_OTHER", "card_refused"}
    assert CANARY.encode() not in received.raw


@pytest.mark.parametrize("capture", ["no_content", "span_and_event"])
async def test_redaction_reaches_descriptions_ids_stops_and_media_types(
    http: Pipeline, capture: Any
) -> None:
    def named() -> str:
        return "ok"

    named.__doc__ = f"Use it for {CANARY}."
    model = ScriptedModel([call("named", call_id=f"id-{CANARY}")], "ok")
    agent = Agent(
        model,
        tools=[named],
        settings=Settings(stop=(f"stop {CANARY}",)),
        telemetry=http.telemetry(
            capture=capture,
            redact=lambda text: text.replace(CANARY, "***"),
            attributes={"user": f"{CANARY}@example.com"},
        ),
    )
    talk = Conversation(id=f"talk-{CANARY}")
    picture = Image(data=b"x", media_type=f"image/{CANARY}")
    await agent.chat([Text("Look:"), picture], conversation=talk)
    received = http.flush()
    assert CANARY.encode() not in received.raw
    assert received.span("execute_tool named").attributes["gen_ai.tool.description"] == (
        "Use it for ***."
    )
    root = received.span("invoke_agent agent").attributes
    assert root["gen_ai.conversation.id"] == "talk-***"
    assert root["gen_ai.request.stop_sequences"] == ["stop ***"]
    assert root["user"] == "***@example.com"


@pytest.mark.parametrize("history", ["new", "full"])
async def test_no_attribute_is_larger_than_it_may_be(http: Pipeline, history: str) -> None:
    def big(rows: list[str]) -> list[str]:
        """A tool."""
        return rows

    big.__doc__ = "d" * 20_000
    rows = ['\u20ac"' * 500] * 40
    earlier = [UserMessage(parts=(Text(f"{n} " + "\u20ac" * 900),)) for n in range(60)]
    agent = Agent(
        ScriptedModel([call("big", rows=rows)], "a" * 30_000),
        tools=[big],
        telemetry=http.telemetry(capture="span_only", max_attribute=8_192, history=history),
    )
    media = [Image(data=b"x") for _ in range(300)]
    talk = Conversation(messages=earlier)
    await agent.chat([Text("q" * 30_000), *media], conversation=talk, system="s" * 30_000)
    spans = http.flush().ours
    for span in spans:
        for name, value in span.attributes.items():
            if isinstance(value, str):
                assert len(value.encode()) <= 8_192, name
                if name in CONTENT:
                    assert json.loads(value), name
    dropped = [s.attributes.get("hookline.input.dropped_messages", 0) for s in spans]
    if history == "full":
        (first, *_) = [s for s in spans if s.name.startswith("chat")]
        kept = content(first, "input.messages")
        assert len(kept) + first.attributes["hookline.input.dropped_messages"] == 61
        assert kept[-1]["parts"][0]["content"].startswith("qqq")  # the oldest were dropped
    else:
        assert max(dropped) == 0


async def test_pythons_logs_bridged_to_opentelemetry_hold_no_content(http: Pipeline) -> None:
    """At INFO, with every kind of logger; the bridge is the SDK's own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        handler = LoggingHandler(level=logging.INFO, logger_provider=http.loggers)
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        found = await everywhere(http)
        logging.getLogger("hookline").info("a line that arrives")
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
    assert found == set()
    assert b"a line that arrives" in http.flush().raw
