"""Routes that the chat page needs.

GET    /page/about                   the agent's name, model and description, and starter questions
POST   /page/markdown                {"texts"}: each text as blocks of elements
GET    /page/{id}/pending            the ids of the approvals that wait, and whether an answer runs
GET    /page/{id}/timeline           the runs of a conversation, and the ratings
GET    /page/{id}/steps/{run}/{n}    the request and response of a step; for a sub-agent's chat,
                                     {run}/{chat}/{n}
"""

from __future__ import annotations

from typing import Any

import msgspec

from hookline import Agent
from hookline.models import model_name
from hookline.web._http.request_reply import Refused, Reply, Request, json_reply
from hookline.web._page.files import Page
from hookline.web._page.markdown_parser import MarkdownParser
from hookline.web._page.timeline_store import Timelines
from hookline.web._protocols.incoming import id_of, text_of
from hookline.web._site.config import SiteConfig
from hookline.web._site.conversations import Index, conversation_key


class PageRoutes:
    """The routes of the page, with its timelines and the parser of its Markdown."""

    def __init__(self, config: SiteConfig, index: Index) -> None:
        self._config = config
        self._index = index
        price = None if config.page is None else config.page.price
        self.timelines = Timelines(config.store, describe_error=config.describe_error, price=price)
        """The timelines of all conversations, if the page is on."""
        self.markdown = MarkdownParser()

    async def answer(self, request: Request, principal: str, rest: str) -> Reply:
        """Answer a request of the page."""
        page = self._config.page
        if page is None:
            raise Refused(404, "There is nothing here; check the address.")
        if rest == "about":
            return json_reply(self._about(page))
        if rest == "markdown":
            return await self._markdown(request, principal)
        id, _, what = rest.rpartition("/")
        if what == "pending":
            return await self._pending(principal, id_of(id, "A conversation's id"))
        if what == "timeline":
            return await self._timeline(principal, id_of(id, "A conversation's id"))
        id, steps, place = rest.rpartition("/steps/")
        if steps:
            return await self._step(principal, id_of(id, "A conversation's id"), place)
        raise Refused(404, "There is nothing here; check the address.")

    def _about(self, page: Page) -> dict[str, Any]:
        config = self._config
        agent: Agent[Any] = config.agent
        return {
            "name": agent.name,
            "model": model_name(agent.model),
            "title": page.title or agent.name,
            "description": page.description,
            "starters": page.starters,
            "details": page.details,
            "currency": page.currency,
            "edits": config.edits,
            "approvals": config.approvals,
            "inbox": config.approvers is not None,
            "policies": config.policies is not None,
            "most": config.runs.caps.body_bytes,
        }

    async def _markdown(self, request: Request, principal: str) -> Reply:
        texts = (await self._config.body(request)).get("texts")
        if not isinstance(texts, list):
            raise Refused(400, "texts must be a list of strings.")
        strings = [text_of(text, "A text") for text in texts]  # pyright: ignore[reportUnknownVariableType]
        return json_reply({"texts": await self.markdown.parse(principal, strings)})

    async def _pending(self, principal: str, id: str) -> Reply:
        key = conversation_key(principal, id)
        requests = await self._config.store.pending(key)
        running = self._config.runs.find(key) is not None
        return json_reply({"pending": [request.id for request in requests], "running": running})

    async def _timeline(self, principal: str, id: str) -> Reply:
        if not await self._index.has(principal, id):
            raise Refused(404, "There is no such conversation; choose one from the list.")
        timeline = await self.timelines.read(conversation_key(principal, id))
        runs = [msgspec.structs.replace(run, steps=[]) for run in timeline.runs]
        return json_reply({"runs": runs, "feedback": timeline.feedback})

    async def _step(self, principal: str, id: str, place: str) -> Reply:
        run, _, step_of = place.partition("/")
        chat, _, number = step_of.rpartition("/")
        timeline = await self.timelines.read(conversation_key(principal, id))
        for record in timeline.runs:
            for step in record.steps:
                if (record.run, step.chat, str(step.iteration)) == (run, chat, number):
                    return json_reply(step)
        raise Refused(404, "This step was not recorded; choose another step of the conversation.")
