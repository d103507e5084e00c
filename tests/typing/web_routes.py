"""What the type checkers say of routes of one's own. Never run: `scripts/check` reads it."""

from __future__ import annotations

from starlette.requests import Request

from hookline import Agent, Conversation, Deny
from hookline.hooks import redact
from hookline.testing import ScriptedModel
from hookline.web import Runs, chat_response, resume_detached

agent = Agent(ScriptedModel())


async def chat(request: Request) -> None:
    await chat_response(agent, request, deps=3, hooks=[redact("x")], system="ignore")
    await chat_response(agent, request, dpes=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def decide(talk: Conversation, runs: Runs) -> None:
    answers = {"a": Deny("no")}
    await resume_detached(agent, talk, answers, runs=runs, deps=3, system="Be brief.")
    await resume_detached(agent, talk, answers, runs=runs, dpes=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await resume_detached(agent, talk, answers, runs=runs, release="late")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
