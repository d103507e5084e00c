"""What a message has for the application alone is not in a provider's request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests._wires import WIRES, wire
from tests.chat.test_stamps import MESSAGES, look

from hookline import Agent, Conversation
from hookline.storage import RanCall
from hookline.testing import Turn


@pytest.mark.parametrize("kind", WIRES)
async def test_no_model_is_sent_what_is_only_known_about_a_message(kind: Any) -> None:
    ran = RanCall(arguments={"q": "planted-arguments"}, by="planted-person", note="planted-note")
    known = [
        MESSAGES[0].replace(chat_id="planted-chat", at=5678.25),
        MESSAGES[1].replace(chat_id="planted-chat", at=5678.25),
        MESSAGES[2].replace(chat_id="planted-chat", at=5678.25, ran=ran),
    ]
    sent: list[Any] = []
    for history in (MESSAGES, known):
        async with wire(kind, Turn("ok")) as (model, server):
            agent: Agent[Any] = Agent(model, tools=[look])
            await agent.chat(None, conversation=Conversation(history))
            (request,) = server.requests
            sent.append(request)
    bodies = [json.dumps(request.json, sort_keys=True) for request in sent]
    assert bodies[0] == bodies[1]
    assert "found x" in bodies[0]
