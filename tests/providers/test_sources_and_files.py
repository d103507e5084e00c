"""Sources, files, pictures and sound that providers send, and what of them goes back."""

from __future__ import annotations

import io
import json
import wave
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import pytest
from tests._wires import ADAPTERS, KEY, WIRES
from tests.wire import Wire, WireServer

from hookline import Agent, AssistantMessage, Conversation, File, Image, Source, Text
from hookline.providers.openai import OpenAIModel
from hookline.providers.openai_chat import OpenAIChatSettings
from hookline.testing import Turn

from ._habits import PLACE, START, STOP, block, ended, gemini, named, said, sse

PNG = b"\x89PNG\r\n\x1a\n"
BASE = b64encode(PNG).decode()
PAGE = "https://example.org"


async def answered(kind: Any, first: Wire, **options: Any) -> tuple[AssistantMessage, Any]:
    """The answer that these events are, and the request with which the chat goes on."""
    talk = Conversation()
    if kind != "openai-chat":
        options["provider"] = kind  # as if the server were the provider's own
    async with WireServer(kind, first, "Bye.") as server:
        model = ADAPTERS[kind]("m", base_url=server.url, api_key=KEY, **options)
        agent = Agent(model)
        await agent.chat("Is it so?", conversation=talk)
        await agent.chat("Thanks.", conversation=talk)
    answer = talk.messages[1]
    assert isinstance(answer, AssistantMessage)
    return answer, server.requests[1].json


def chunk(fields: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    """An event of Chat Completions."""
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": reason}]}


def bare(parts: Sequence[Any]) -> list[Any]:
    """Parts without the provider's own."""
    return [part.replace(meta=None) for part in parts]


# ── Anthropic ───────────────────────────────────────────────────────────────────────────────


async def test_what_anthropics_tools_found_read_and_cited() -> None:
    results = [
        {"type": "web_search_result", "url": PAGE, "title": "Example", "encrypted_content": "x"},
        {"type": "web_search_result", "url": f"{PAGE}/2", "title": "Two", "encrypted_content": "x"},
    ]
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": results}
    document = {"type": "document", "title": "Three", "source": {"type": "text", "data": "…"}}
    page = {"type": "web_fetch_result", "url": f"{PAGE}/3", "content": document}
    fetched = {"type": "web_fetch_tool_result", "tool_use_id": "s2", "content": page}
    cites = [
        {"type": "web_search_result_location", "url": PAGE, "title": "Example", "cited_text": "a"},
        {"type": "page_location", "document_index": 0, "document_title": "Mine", "cited_text": "b"},
        {"type": "search_result_location", "source": f"{PAGE}/4", "title": "Four"},
        {"type": "search_result_location", "source": "shelf 4", "title": "Five"},
    ]
    text = block(
        2,
        {"type": "text", "text": "", "citations": []},
        {"type": "text_delta", "text": "So it is."},
        *({"type": "citations_delta", "citation": each} for each in cites),
    )
    turn = named(START, *block(0, found), *block(1, fetched), *text, ended("end_turn"), STOP)
    answer, then = await answered("anthropic", turn)
    assert list(answer.sources) == [
        Source(url=PAGE, title="Example"),
        Source(url=f"{PAGE}/2", title="Two"),
        Source(url=f"{PAGE}/3", title="Three"),
        Source(title="Mine"),
        Source(url=f"{PAGE}/4", title="Four"),
        Source(title="Five"),
    ]
    [said_text] = [part for part in answer.parts if isinstance(part, Text)]
    assert said_text.meta == {"anthropic": {"citations": cites}}
    assert [each["type"] for each in then["messages"][1]["content"]] == [
        "web_search_tool_result",
        "web_fetch_tool_result",
        "text",
    ]


@pytest.mark.parametrize("tool", ["code_execution", "bash_code_execution"])
async def test_files_that_code_has_made_at_anthropic(tool: str) -> None:
    output = {"type": f"{tool}_output", "file_id": "file_1"}
    result = {"type": f"{tool}_result", "content": [output], "return_code": 0}
    record = {"type": f"{tool}_tool_result", "tool_use_id": "s1", "content": result}
    turn = named(START, *block(0, record), *said("Done."), ended("end_turn"), STOP)
    answer, _ = await answered("anthropic", turn)
    [file] = answer.files
    assert file.meta == {"anthropic": {"file_id": "file_1"}}
    assert (file.data, file.url) == (None, None)


async def test_a_tool_that_failed_at_anthropic_brings_nothing() -> None:
    error = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    record = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": error}
    turn = named(START, *block(0, record), *said("No."), ended("end_turn"), STOP)
    answer, _ = await answered("anthropic", turn)
    assert (answer.sources, answer.files, answer.text) == ((), (), "No.")


# ── OpenAI Responses ────────────────────────────────────────────────────────────────────────


def items(*given: dict[str, Any]) -> Wire:
    done = (
        {"type": "response.output_item.done", "output_index": n, "item": item}
        for n, item in enumerate(given)
    )
    return named(*done, {"type": "response.completed", "response": {"id": "r"}})


def spoken(*notes: dict[str, Any]) -> dict[str, Any]:
    content = {"type": "output_text", "text": "So it is.", "annotations": list(notes)}
    return {"type": "message", "id": "msg_1", "content": [content]}


async def test_what_openais_tools_found_and_cited() -> None:
    action = {"type": "search", "query": "it", "sources": [{"type": "url", "url": f"{PAGE}/2"}]}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}
    opened = {"type": "open_page", "url": f"{PAGE}/3"}
    results = [{"file_id": "f1", "filename": "handbook.pdf", "text": "…", "score": 0.5}]
    notes = [
        {"type": "url_citation", "url": PAGE, "title": "Example", "start_index": 0, "end_index": 2},
        {"type": "file_citation", "file_id": "f1", "filename": "handbook.pdf", "index": 3},
        {
            "type": "container_file_citation",
            "container_id": "c1",
            "file_id": "cf1",
            "filename": "table.csv",
            "start_index": 0,
            "end_index": 2,
        },
    ]
    said_item = spoken(*notes)
    turn = named(
        *(
            {"type": "response.output_item.done", "output_index": n, "item": item}
            for n, item in enumerate(
                (
                    search,
                    {**search, "id": "ws_2", "action": opened},
                    {"type": "file_search_call", "id": "fs_1", "queries": [], "results": results},
                )
            )
        ),
        {"type": "response.output_text.delta", **PLACE, "delta": "So it is."},
        {"type": "response.output_item.done", "output_index": 3, "item": said_item},
        {"type": "response.completed", "response": {"id": "r"}},
    )
    answer, _ = await answered("openai", turn)
    assert list(answer.sources) == [
        Source(url=f"{PAGE}/2"),
        Source(url=f"{PAGE}/3"),
        Source(name="handbook.pdf", media_type="application/pdf"),
        Source(url=PAGE, title="Example"),
    ]
    [table] = answer.files
    where = {"openai": {"container_id": "c1", "file_id": "cf1"}}
    assert table == File(media_type="text/csv", name="table.csv", meta=where)
    [text] = [part for part in answer.parts if isinstance(part, Text)]
    assert text.meta == {"openai": {"annotations": notes}}


async def test_a_picture_of_openais_tool_goes_back_as_its_record() -> None:
    made = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": BASE}
    made["output_format"] = "webp"
    answer, then = await answered("openai", items(made))
    [picture] = answer.files
    assert bare([picture]) == [Image(media_type="image/webp", data=PNG)]
    assert BASE not in json.dumps(picture.meta)  # it is stored once
    assert made in then["input"]


async def test_pictures_of_openais_code() -> None:
    outputs = [
        {"type": "logs", "logs": "2"},
        {"type": "image", "url": f"data:image/png;base64,{BASE}"},
        {"type": "image", "url": f"{PAGE}/plot.png"},
    ]
    ran = {"type": "code_interpreter_call", "id": "ci_1", "container_id": "c1", "outputs": outputs}
    answer, then = await answered("openai", items(ran))
    assert list(answer.files) == [
        Image(media_type="image/png", data=PNG),
        Image(media_type="image/png", url=f"{PAGE}/plot.png"),
    ]
    assert ran in then["input"]


# ── Chat Completions ────────────────────────────────────────────────────────────────────────


async def test_what_a_chat_completion_cites() -> None:
    note = {"type": "url_citation", "url_citation": {"url": PAGE, "title": "Example"}}
    first = {**chunk({"content": "So it is."}), "citations": [PAGE, f"{PAGE}/2"]}
    first["search_results"] = [{"title": "Three", "url": f"{PAGE}/3", "date": None}]
    turn = sse(first, chunk({"annotations": [note]}), chunk({}, "stop"))
    answer, _ = await answered("openai-chat", turn)
    assert list(answer.sources) == [
        Source(url=PAGE, title="Example"),
        Source(url=f"{PAGE}/3", title="Three"),
        Source(url=f"{PAGE}/2"),
    ]
    [text] = [part for part in answer.parts if isinstance(part, Text)]
    assert list((text.meta or {}).values()) == [{"annotations": [note]}]


async def test_sound_of_a_chat_completion_is_a_file_and_its_transcript_the_text() -> None:
    pieces = [b"\x01\x00\x02\x00", b"\x03\x00"]
    events = [
        chunk({"audio": {"id": "audio_1", "transcript": "So it "}}),
        *(chunk({"audio": {"data": b64encode(each).decode()}}) for each in pieces),
        chunk({"audio": {"transcript": "is."}}),
        chunk({"audio": {"expires_at": 1_800_000_000}}),
        chunk({}, "stop"),
    ]
    settings = OpenAIChatSettings(
        modalities=("text", "audio"), audio={"voice": "alloy", "format": "pcm16"}
    )
    answer, then = await answered("openai-chat", sse(*events), settings=settings)
    assert answer.text == "So it is."
    [sound] = answer.files
    assert sound.media_type == "audio/wav"
    assert list((sound.meta or {}).values()) == [{"id": "audio_1"}]
    with wave.open(io.BytesIO(sound.data or b"")) as player:
        assert (player.getframerate(), player.getnchannels()) == (24_000, 1)
        assert player.readframes(9) == b"".join(pieces)
    assert then["messages"][1] == {"role": "assistant", "content": "So it is."}


async def test_sound_in_another_form_stays_in_it() -> None:
    event = chunk({"audio": {"data": b64encode(b"ID3").decode(), "transcript": "Hm."}})
    settings = OpenAIChatSettings(
        modalities=("text", "audio"), audio={"voice": "alloy", "format": "mp3"}
    )
    answer, _ = await answered("openai-chat", sse(event, chunk({}, "stop")), settings=settings)
    assert [(each.media_type, each.data) for each in answer.files] == [("audio/mpeg", b"ID3")]


async def test_pictures_of_a_chat_completion_are_shown_to_the_model_that_goes_on() -> None:
    url = f"data:image/png;base64,{BASE}"
    event = chunk(
        {"content": "Here.", "images": [{"type": "image_url", "image_url": {"url": url}}]}
    )
    answer, then = await answered("openai-chat", sse(event, chunk({}, "stop")))
    assert list(answer.files) == [Image(media_type="image/png", data=PNG)]
    roles = [each["role"] for each in then["messages"]]
    assert roles == ["user", "assistant", "user", "user"]
    assert then["messages"][2]["content"][1] == {"type": "image_url", "image_url": {"url": url}}


# ── Gemini ──────────────────────────────────────────────────────────────────────────────────


async def test_what_gemini_found_and_read() -> None:
    grounding = {
        "groundingChunks": [
            {"web": {"uri": PAGE, "title": "Example"}},
            {"retrievedContext": {"title": "Handbook", "text": "…"}},
            {"maps": {"uri": f"{PAGE}/map", "title": "Oslo"}},
        ],
        "groundingSupports": [{"segment": {"endIndex": 9}, "groundingChunkIndices": [0]}],
    }
    read = [
        {"retrievedUrl": f"{PAGE}/2", "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_SUCCESS"},
        {"retrievedUrl": f"{PAGE}/3", "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_ERROR"},
    ]
    turn = sse(
        gemini(
            {"text": "So it is."},
            finishReason="STOP",
            groundingMetadata=grounding,
            urlContextMetadata={"urlMetadata": read},
        ),
        done=False,
    )
    answer, _ = await answered("google", turn)
    assert list(answer.sources) == [
        Source(url=PAGE, title="Example"),
        Source(title="Handbook"),
        Source(url=f"{PAGE}/map", title="Oslo"),
        Source(url=f"{PAGE}/2"),
    ]
    assert answer.meta is not None
    assert answer.meta["google"]["grounding"]["groundingSupports"] == grounding["groundingSupports"]


async def test_a_picture_of_geminis_goes_back_with_its_signature() -> None:
    blob = {"inlineData": {"mimeType": "image/png", "data": BASE}}
    signed = {**blob, "thoughtSignature": "c2ln"}
    parts = ({"text": "Here."}, {**blob, "thought": True}, signed)
    turn = sse(gemini(*parts, finishReason="STOP"), done=False)
    answer, then = await answered("google", turn)
    assert bare(answer.files) == [Image(media_type="image/png", data=PNG)]
    parts_sent = json.dumps(then["contents"][1]["parts"])
    spelled = parts_sent.replace('"mime_type"', '"mimeType"')  # newer SDKs keep the case of a key
    assert json.loads(spelled) == [{"text": "Here."}, signed]


async def test_sound_of_geminis_is_one_file() -> None:
    kind = "audio/L16;codec=pcm;rate=16000"
    pieces = [b"\x01\x00", b"\x02\x00"]
    parts = [{"inlineData": {"mimeType": kind, "data": b64encode(p).decode()}} for p in pieces]
    events = [*(gemini(each) for each in parts), gemini({"text": ""}, finishReason="STOP")]
    answer, _ = await answered("google", sse(*events, done=False))
    [sound] = answer.files
    assert sound.media_type == "audio/wav"
    with wave.open(io.BytesIO(sound.data or b"")) as player:
        assert player.getframerate() == 16_000
        assert player.readframes(9) == b"".join(pieces)


# ── from one to the other ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", WIRES)
async def test_a_picture_that_another_model_has_made_is_shown_by_the_user(kind: Any) -> None:
    made = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": BASE}
    talk = Conversation()
    async with WireServer("openai", items(made)) as server:
        await Agent(OpenAIModel("m", base_url=server.url, api_key=KEY, provider="openai")).chat(
            "Draw.", conversation=talk
        )
    async with WireServer(kind, "Nice.") as server:
        model = ADAPTERS[kind]("m", base_url=server.url, api_key=KEY, provider=kind)
        await Agent(model).chat("Make it blue.", conversation=talk)
    sent = json.dumps(server.requests[0].json)
    assert sent.count(BASE) == 1
    assert ("Images that you have made:" in sent) == (kind != "openai")
    assert ("ig_1" in sent) == (kind == "openai")


# ── from a script, over the wire servers ────────────────────────────────────────────────────

WEB = Source(url=PAGE, title="Example")
DRAWN = Image(media_type="image/png", data=PNG)
SPOKEN = File(media_type="audio/wav", data=b"RIFF")
SCRIPTS: dict[str, list[Any]] = {
    "openai": ["So it is.", WEB, DRAWN],
    "openai-chat": ["So it is.", WEB, DRAWN],
    "anthropic": [
        "So it is.",
        WEB,
        File(media_type="application/octet-stream", meta={"anthropic": {"file_id": "file_1"}}),
    ],
    "google": ["So it is.", DRAWN, SPOKEN, WEB],
}


@pytest.mark.parametrize("kind", WIRES)
async def test_a_wire_server_says_what_a_script_says(kind: Any) -> None:
    script = SCRIPTS[kind]
    answer, _ = await answered(kind, Wire(Turn(*script)))
    assert answer.text == "So it is."
    assert list(answer.sources) == [WEB]
    wanted = [each for each in script if isinstance(each, (Image, File))]
    assert bare(answer.files) == bare(wanted)


@pytest.mark.parametrize("kind", WIRES)
async def test_a_wire_server_sends_a_source_without_text(kind: Any) -> None:
    answer, _ = await answered(kind, Wire(Turn(WEB, "Yes.")))
    assert [each.url for each in answer.sources] == [PAGE]


@pytest.mark.parametrize("kind", WIRES)
def test_what_a_format_cannot_say_is_refused(kind: Any) -> None:
    nothing = File(media_type="text/plain")
    with pytest.raises(ValueError, match="cannot express"):
        Wire(Turn(nothing)).pieces(kind, 1)
