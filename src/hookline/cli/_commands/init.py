"""`hookline init`: create a folder with an agent, a tool, a hook, and a working test."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from hookline.cli._options import Debug
from hookline.cli._terminal.clean_text import strict
from hookline.errors import UsageError

APP: Final = '''"""An agent with a tool and a hook. Talk to it: hookline chat app:agent"""

import os

from hookline import Agent, Ask, ModelRequest
from hookline.points import PreToolCall
from hookline.testing import Answer, ScriptedModel, call


async def weather(city: str) -> str:
    """Get the weather of a city."""
    return f"18 degrees and **sunny** in {city}"


def answer(request: ModelRequest) -> Answer:
    """Play the model, without a key or a network: call the tool, then repeat its result."""
    last = request.messages[-1]
    return f"The tool says: {last.text}" if last.role == "tool" else call("weather", city="Paris")


# HOOKLINE_MODEL names a real model, such as openai:gpt-5-mini.
model = os.environ.get("HOOKLINE_MODEL") or ScriptedModel(answer, repeat=True)
agent = Agent(model, name="helper", system="You are brief and friendly.", tools=[weather])


@agent.hook("preToolCall", tools=["weather"])
def ask_first(ctx: PreToolCall) -> Ask:
    """Ask before each call. `hookline hooks app:agent` lists the hooks."""
    return Ask(f"Look up the weather in {ctx.call.arguments.get('city')}?")
'''
TEST: Final = '''"""Run it with: python test_app.py, or, if pytest is installed: python -m pytest"""

import asyncio

from app import agent, answer

from hookline import Approve, Conversation
from hookline.testing import ScriptedModel


async def ask() -> str:
    talk, model = Conversation(), ScriptedModel(answer, repeat=True)  # never a real model
    response = await agent.chat("Do I need a hat in Paris?", conversation=talk, model=model)
    assert [request.call.name for request in response.pending] == ["weather"]
    answers = {request.id: Approve() for request in response.pending}
    return (await agent.resume(talk, answers, model=model)).text


def test_it_asks_before_it_looks_up_the_weather() -> None:
    assert "sunny" in asyncio.run(ask())


if __name__ == "__main__":
    test_it_asks_before_it_looks_up_the_weather()
    print("fine")
'''
FILES: Final = {"app.py": APP, "test_app.py": TEST}


def _write(folder: str) -> list[str]:
    """Write the files; returns the lines to print. Raises UsageError if a file already exists."""
    place = Path(folder)
    existing = [name for name in FILES if (place / name).exists()]
    if existing:
        raise UsageError(
            f"{existing[0]} already exists in {place}; name an empty folder: hookline init myagent"
        )
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, text in FILES.items():
            (place / name).write_text(text, encoding="utf-8")
    except OSError as exc:
        raise UsageError(
            f"{folder} cannot be written: {exc.strerror}; name another folder"
        ) from exc
    first = [] if place == Path() else [f"  cd {strict(folder)}"]
    return [
        f"wrote {', '.join(FILES)}",
        *first,
        "  python test_app.py           runs the test",
        "  hookline chat app:agent      talks to the agent",
        "  hookline serve app:agent     serves a chat page",
        "HOOKLINE_MODEL=openai:gpt-5-mini selects a real model.",
    ]


def init(
    folder: Annotated[str, Parameter(help="The folder to write to; created if missing.")] = ".",
    /,
    *,
    debug: Debug = False,
) -> None:
    """Write an agent with a tool, a hook and a test."""
    for line in _write(folder):
        print(line)
