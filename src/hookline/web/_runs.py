"""The runs of a server: how many there may be, whose they are, and how they end with it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from hookline import Agent, ChatStream, Message
from hookline.points import OnHook
from hookline.web._incoming import Incoming, Refused
from hookline.web._live import DEFAULT_CAPS, Caps, Live
from hookline.web._native import HookFired


class Runs:
    """What runs at the moment. One of it serves all routes of a process.

    A run has a key, the conversation that it runs on: a second one on the same key is refused, and
    by its key it is found again to be read, or stopped.
    """

    def __init__(self, caps: Caps = DEFAULT_CAPS) -> None:
        self.caps = caps
        """The bounds."""
        self.closing = False
        """Whether the server shuts down and takes no more."""
        self._live: dict[str, Live] = {}  # by key: running, or kept for a while after
        self._chats: dict[str, Live] = {}  # by chat id, running only
        self._nested: dict[str, Live] = {}  # by chat id of a sub-agent
        self._principals: Counter[str] = Counter()
        self._forget: dict[str, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        """How many run."""
        return len(self._chats)

    def check(self, key: str, principal: str) -> None:
        """Raise Refused where a run cannot begin now."""
        if self.closing:
            raise Refused(503, "The server is shutting down; try again later.", retry_after="5")
        running = self.find(key)
        if running is not None:
            raise Refused(
                409, "This conversation is busy with another answer; wait for it, or stop it."
            )
        if len(self) >= self.caps.streams:
            raise Refused(429, "The server is busy; try again later.", retry_after="5")
        if self._principals[principal] >= self.caps.streams_per_principal:
            raise Refused(
                429, "Too many answers at the same time; wait for one to end.", retry_after="5"
            )

    def begin(
        self,
        key: str,
        principal: str,
        stream: ChatStream,
        *,
        kept: bool = False,
        before: tuple[Message, ...] = (),
        incoming: Incoming | None = None,
    ) -> Live:
        """Begin a run; raises Refused where it cannot."""
        self.check(key, principal)
        live = Live(stream, caps=self.caps, kept=kept, before=before, incoming=incoming)
        timer = self._forget.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._live[key] = live
        self._chats[live.chat_id] = live
        self._principals[principal] += 1

        def ended(live: Live) -> None:
            self._chats.pop(live.chat_id, None)
            for nested in [id for id, other in self._nested.items() if other is live]:
                del self._nested[nested]
            self._principals[principal] -= 1
            if not self._principals[principal]:
                del self._principals[principal]
            if self._live.get(key) is live:
                self._end(key, live)

        live.start(ended)
        return live

    def _end(self, key: str, live: Live) -> None:
        if not live.kept or self.closing:
            del self._live[key]
            return
        loop = asyncio.get_running_loop()
        self._forget[key] = loop.call_later(self.caps.replay_ttl, self._drop, key)

    def _drop(self, key: str) -> None:
        self._forget.pop(key, None)
        self._live.pop(key, None)

    def find(self, key: str, *, ended: bool = False) -> Live | None:
        """The run on a key; with `ended=True` also one that is over and still kept."""
        live = self._live.get(key)
        return live if live is not None and (ended or not live.over) else None

    def stop(self, key: str, reason: str = "stopped by the user") -> bool:
        """Stop the run on a key; False when there is none."""
        live = self.find(key)
        return live is not None and live.abort(reason)

    async def shutdown(self, drain: float | None = None) -> None:
        """Take no more runs, let those that run end, and abort what is left after `drain`
        seconds. It returns when all have ended, within the agents' grace period.
        """
        self.closing = True
        for timer in self._forget.values():
            timer.cancel()
        self._forget.clear()
        running = [asyncio.ensure_future(live.join()) for live in self._chats.values()]
        if running:
            seconds = self.caps.drain if drain is None else drain
            await asyncio.wait(running, timeout=seconds)
            for live in list(self._chats.values()):
                live.abort("the server is shutting down")
            await asyncio.wait(running)
        self._live.clear()

    def watch(self, agent: Agent[Any]) -> None:
        """Put every hook of the agent and its sub-agents that fires into the run it fires in."""
        agent.add_hook(
            "onHook", self._fired, name="hookline.web timeline", on_error="log", inherit=True
        )

    def _find_chat(self, chat_id: str) -> Live | None:
        return self._chats.get(chat_id) or self._nested.get(chat_id)

    def _fired(self, ctx: OnHook[Any]) -> None:
        run = ctx.run
        if run is None:
            return
        live = self._find_chat(run.chat_id)
        if live is None and run.parent_chat_id is not None:
            live = self._find_chat(run.parent_chat_id)
            if live is not None:
                self._nested[run.chat_id] = live
        if live is not None and not live.ended:
            live.put(
                HookFired(
                    chat_id=run.chat_id,
                    point=ctx.point,
                    hook=ctx.hook,
                    outcome=ctx.outcome,
                    duration=round(ctx.duration * 1000, 3),
                )
            )
