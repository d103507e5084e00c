"""What servers are known to send, row by row, through the vendors' SDKs on a loopback socket."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests._wires import ADAPTERS, KEY
from tests.wire import WireServer

from hookline import Agent, AssistantMessage, Conversation, ToolCall, check_history, tool
from hookline.errors import ModelError

from ._habits import HABITS, Habit, page

ROWS = [row for rows in HABITS.values() for row in rows]


@tool
async def weather(city: str = "nowhere") -> str:
    """The weather in a city."""
    return "sunny"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.format} {row.server}: {row.habit}")
async def test_a_habit_of_a_server(row: Habit) -> None:
    talk = Conversation()
    async with WireServer(row.format, row.wire, *(["Done."] if row.calls else [])) as server:
        model = ADAPTERS[row.format](row.model, base_url=server.url, api_key=KEY)
        agent: Agent[Any] = Agent(model, tools=[weather])
        if row.error is not None:
            with pytest.raises(ModelError) as caught:
                await agent.chat("Hi.", conversation=talk)
            assert type(caught.value) is row.error
            assert caught.value.retryable == row.retryable
            assert row.says in str(caught.value)
            assert KEY not in str(caught.value)
            assert row.kept in (caught.value.request_id or "")
            check_history(talk.messages)
            return
        await agent.chat("Hi.", conversation=talk)
        sent = json.dumps(server.requests[-1].json, ensure_ascii=False)
    answer = talk.messages[1]
    assert isinstance(answer, AssistantMessage)
    assert row.text is None or answer.text == row.text
    assert row.reasoning is None or answer.reasoning == row.reasoning
    found = [part for part in answer.parts if isinstance(part, ToolCall)]
    assert [(each.name, each.arguments) for each in found] == list(row.calls)
    assert len({each.id for each in found}) == len(found)
    assert row.finish is None or answer.finish_reason == row.finish
    assert tuple(each.url for each in answer.sources) == row.sources
    assert tuple(each.media_type for each in answer.files) == row.files
    assert row.sent in sent
    assert row.kept in json.dumps(answer.meta)


def test_the_page_of_the_docs_has_every_row() -> None:
    rows = re.findall(r"^\| (?!server |-)(.+) \|$", page(), re.MULTILINE)
    assert len(rows) == sum(map(len, HABITS.values()))
