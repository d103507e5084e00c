"""The sub-agents of one answer: when each of them begins and ends. Pure.

Each sub-agent begins once and ends once, however its events arrive.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from hookline.events import ChatAborted, ChatDone, ChatEvent, ChatFailed, ChatStarted, Status
from hookline.web._protocols.answer_changes import AnyChange, SubAgentChanged


class SubAgents:
    """The sub-agents that have begun, by the ids of their chats."""

    def __init__(self) -> None:
        self._running: dict[str, SubAgentChanged | None] = {}  # None: it has ended

    def take(self, event: ChatEvent) -> list[AnyChange]:
        """Return the changes for an event of a sub-agent."""
        id = event.chat_id
        match event:
            case Status():
                return [event]
            case ChatStarted() if id not in self._running:
                above = event.parent_chat_id
                begun = SubAgentChanged(
                    id=id,
                    name=event.agent,
                    path=event.path,
                    parent=above if above in self._running else None,
                    status="running",
                )
                self._running[id] = begun
                return [begun]
            case ChatDone():
                return self._end(id, "waits" if event.response.pending else "done")
            case ChatAborted():
                return self._end(id, "aborted")
            case ChatFailed():
                return self._end(id, "failed", event.error.message)
            case _:
                return []

    def stop(self) -> list[AnyChange]:
        """Return the changes for an answer that ends: no sub-agent runs on."""
        return [change for id in reversed(self._running) for change in self._end(id, "aborted")]

    def _end(
        self,
        id: str,
        status: Literal["done", "waits", "aborted", "failed"],
        text: str | None = None,
    ) -> list[AnyChange]:
        begun = self._running.get(id)
        if begun is None:
            return []
        self._running[id] = None
        return [replace(begun, status=status, text=text)]
