"""Short words for the tests of tool calls: what came of a chat, and a clock that is moved."""

import asyncio

from hookline import AssistantMessage, ToolMessage, check_history
from hookline.events import ToolCallFinished, ToolCallStarted, read_event


def results(holder):
    """(call id, outcome, text) of each tool message, as they were committed."""
    return [
        (message.call_id, message.outcome, message.text)
        for message in holder.messages
        if isinstance(message, ToolMessage)
    ]


def result_ids(messages):
    """The call ids of the tool messages, in order."""
    return [message.call_id for message in messages if isinstance(message, ToolMessage)]


def written(holder):
    """{call id: arguments} as history keeps them."""
    return {
        each.id: each.arguments
        for message in holder.messages
        if isinstance(message, AssistantMessage)
        for each in message.tool_calls
    }


def only(events, *kinds):
    """The events of these types."""
    return [event for event in events if isinstance(event, kinds)]


def outcomes(events):
    """{call id: outcome}; each call was started once and then finished once."""
    started, finished = [], {}
    for event in events:
        if isinstance(event, ToolCallStarted):
            assert event.call.id not in started
            started.append(event.call.id)
        elif isinstance(event, ToolCallFinished):
            assert event.call_id in started
            assert event.call_id not in finished
            finished[event.call_id] = event.outcome
    assert sorted(started) == sorted(finished)
    return finished


def assert_json(events):
    """Every event is JSON both ways."""
    for event in events:
        assert read_event(event.to_json()).to_json() == event.to_json()


async def goes_on(agent, conversation):
    """The conversation is free, its history valid and storable, and it takes the next turn."""
    check_history(conversation.messages, open_end=bool(conversation.pending))
    for message in conversation.messages:
        message.to_json()
    response = await agent.chat("and now?", conversation=conversation)
    assert response.text == "next"
    check_history(conversation.messages)


async def settle(turns=50):
    """Let everything run that can run."""
    for _ in range(turns):
        await asyncio.sleep(0)


class Clock:
    """The running loop's clock, which a test moves on instead of waiting."""

    def __init__(self):
        loop = asyncio.get_running_loop()
        real, self._ahead = loop.time, 0.0
        loop.time = lambda: real() + self._ahead

    def skip(self, seconds):
        """So much time passes, in which nothing else runs."""
        self._ahead += seconds

    async def advance(self, seconds):
        """So much time passes, and what was due happens."""
        await settle()
        self.skip(seconds)
        await settle()
