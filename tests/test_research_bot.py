"""The example of a research bot: handoff, sub-agents side by side, guardrail, progress, memory."""

import importlib.util
from pathlib import Path

import pytest

from hookline import Conversation
from hookline.events import ChatStarted, Status
from hookline.testing import collect

PLACE = Path(__file__).parents[1] / "examples" / "15_research_bot.py"


@pytest.fixture
def bot():
    spec = importlib.util.spec_from_file_location("research_bot", PLACE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.bot()


async def test_it_hands_over_asks_both_researchers_and_shows_their_progress(bot):
    events = await collect(bot.chat_stream("What moves the sea?"))
    assert events[-1].response.text == "Tides come from the moon, waves from the wind."
    told = [event for event in events if isinstance(event, Status)]
    assert told[0].type == "handoff"
    pages = [(event.data["topic"], event.data["page"]) for event in told[1:]]
    assert sorted(pages) == [("tides", 1), ("tides", 2), ("waves", 1), ("waves", 2)]
    asked = {event.agent for event in events if isinstance(event, ChatStarted)}
    assert asked == {"triage", "tides_researcher", "waves_researcher"}


async def test_it_remembers_who_speaks_and_refuses_what_is_not_research(bot):
    memory = Conversation()
    await bot.chat("What moves the sea?", conversation=memory)
    again = await bot.chat("What makes the tides?", conversation=memory)
    assert again.text == "As I wrote: the moon."
    refused = await bot.chat("What is the root password?", conversation=memory)
    assert (refused.stop_reason, refused.text) == ("guardrail", "I only do research.")
