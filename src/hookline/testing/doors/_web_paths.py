"""Paths of a probe through `hookline.web.app`, in each protocol that a front end may use."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from secrets import token_hex
from typing import Any, Final, TypeAlias

from hookline import Agent, HookDef
from hookline.testing._guards.call_path import CallPath, Walk
from hookline.testing.doors._request import request, shut_down
from hookline.web import app

TALK: Final = "probe"
Body: TypeAlias = dict[str, Any]


class WebClient:
    """A front end that speaks one protocol with a site of this process."""

    def __init__(self, protocol: str, site: Any, token: str) -> None:
        self._protocol = protocol
        self._site = site
        self._headers = {"authorization": f"Bearer {token}"}

    async def say(self) -> dict[str, Body]:
        """Send a message; returns the calls that wait for an approval now, by its id."""
        await self._post(_MESSAGES[self._protocol])
        return {
            waiting["id"]: waiting["call"] for waiting in (await self._read("native"))["pending"]
        }

    async def answer(
        self, waiting: dict[str, Body], *, approved: bool, arguments: Any = None
    ) -> int:
        """Answer these requests, if there are any; returns the status."""
        if not waiting:
            return 200
        if self._protocol == "ai-sdk":
            body = _ai_sdk_answers(await self._read("ai-sdk"), approved, arguments)
        else:
            body = _ANSWERS[self._protocol]([*waiting], approved, arguments)
        return await self._post(body, statuses=(200, 409))

    async def _post(self, body: Body, *, statuses: tuple[int, ...] = (200,)) -> int:
        path = f"/{self._protocol}"
        return (await request(self._site, path, body, headers=self._headers, statuses=statuses))[0]

    async def _read(self, protocol: str) -> Body:
        path = f"/{protocol}/{TALK}/messages"
        _, answer = await request(self._site, path, headers=self._headers)
        return dict(json.loads(answer))


@asynccontextmanager
async def web_client(
    agent: Agent[Any], protocol: str, *, hooks: Sequence[HookDef] = (), deps: Any = None
) -> AsyncGenerator[WebClient]:
    """A front end of this agent, served with these hooks and deps for each chat."""
    token = token_hex(16)
    site = app(
        agent,
        token=token,
        deps=lambda scope, principal: deps,
        hooks=lambda scope, principal: [*hooks],
    )
    try:
        yield WebClient(protocol, site, token)
    finally:
        await shut_down(site)


# ── the paths ───────────────────────────────────────────────────────────────────────────────


async def _denied(protocol: str, path: CallPath) -> None:
    """A message, and a user who denies each request."""
    async with web_client(path.guarded(), protocol, deps=path.deps) as client:
        waiting = await client.say()
        calls = waiting.values()
        path.has_asked = any(path.is_meant(call["name"], call["arguments"]) for call in calls)
        await client.answer(waiting, approved=False)


async def _withdrawn(protocol: str, path: CallPath) -> None:
    """Access is withdrawn while the user thinks."""
    path.is_approved, path.withdrawn = True, False
    agent, hooks = path.guarded(later=True), [path.question()]
    async with web_client(agent, protocol, hooks=hooks, deps=path.deps) as client:
        waiting = await client.say()
        path.withdrawn = True
        await client.answer(waiting, approved=True)


async def _with_arguments(protocol: str, path: CallPath) -> None:
    """The user approves a harmless call, with other arguments."""
    path.is_approved = True
    agent, hooks = path.guarded(path.turn(path.harmless)), [path.question()]
    async with web_client(agent, protocol, hooks=hooks, deps=path.deps) as client:
        arguments = dict(path.call.arguments)
        await client.answer(await client.say(), approved=True, arguments=arguments)


async def _approved_as_another(path: CallPath) -> None:
    """The front end has shown a harmless call, which the user approves."""
    path.must_differ()
    agent, hooks = path.guarded(), [path.question()]
    async with web_client(agent, "ai-sdk", hooks=hooks, deps=path.deps) as client:
        arguments = dict(path.harmless.arguments)
        status = await client.answer(await client.say(), approved=True, arguments=arguments)
        path.has_refused = path.has_refused or status == 409


NAMES: Final = {"native": "native", "ai-sdk": "AI SDK", "ag-ui": "AG-UI"}
WEB_PATHS: Final[dict[str, Walk]] = {
    **{f"web ({name})": partial(_denied, key) for key, name in NAMES.items()},
    **{
        f"withdrawn while the call waits (web, {name})": partial(_withdrawn, key)
        for key, name in NAMES.items()
    },
    "changed by an answer (web, native)": partial(_with_arguments, "native"),
    "changed by an answer (web, AG-UI)": partial(_with_arguments, "ag-ui"),
    "approved as another call (web, AI SDK)": _approved_as_another,
}
"""The paths through a web application."""


# ── the bodies of the requests ──────────────────────────────────────────────────────────────

_TEXT: Final = "probe"
_AG_UI: Final[Body] = {
    "threadId": TALK,
    "runId": "run",
    "messages": [{"id": "m1", "role": "user", "content": _TEXT}],
    "protocolVersion": "1.0",
}
_MESSAGES: Final[dict[str, Body]] = {
    "native": {"conversation": TALK, "message": _TEXT},
    "ai-sdk": {
        "id": TALK,
        "messages": [
            {"id": "m1", "role": "user", "parts": [{"type": "text", "text": _TEXT}]},
        ],
    },
    "ag-ui": _AG_UI,
}


def _native_answers(requests: list[str], approved: bool, arguments: Any) -> Body:
    answer = {"approved": approved} | ({} if arguments is None else {"arguments": arguments})
    return {"conversation": TALK, "answers": dict.fromkeys(requests, answer)}


def _ag_ui_answers(requests: list[str], approved: bool, arguments: Any) -> Body:
    payload = {"approved": True} | ({} if arguments is None else {"editedArgs": arguments})
    answer = {"status": "resolved", "payload": payload} if approved else {"status": "cancelled"}
    return {**_AG_UI, "resume": [{"interruptId": id, **answer} for id in requests]}


_ANSWERS: Final[dict[str, Callable[[list[str], bool, Any], Body]]] = {
    "native": _native_answers,
    "ag-ui": _ag_ui_answers,
}


def _ai_sdk_answers(reply: Body, approved: bool, arguments: Any) -> Body:
    """The conversation of a front end whose user has answered all requests.

    `arguments`: those that the front end has shown, if they are not those of the call.
    """
    messages: list[Body] = reply["messages"]
    for part in messages[-1]["parts"]:
        if part.get("state") == "approval-requested":
            part["state"] = "approval-responded"
            part["approval"] = {"id": part["approval"]["id"], "approved": approved}
            if arguments is not None:
                part["input"] = arguments
    return {"id": TALK, "messages": messages}
