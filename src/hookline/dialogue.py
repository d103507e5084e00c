"""Let two agents talk to each other: `Dialogue(a, b)` streams the events of all turns.

    async with Dialogue(critic, author, conversation=talk, turns=6) as dialogue:
        dialogue.send("Write a poem about the sea.")
        async for event in dialogue:
            ...

Each turn is a chat of one side, with that side's own hooks. Each side sees its own words as the
assistant's messages, and the other side's words as the user's. The stored conversation is the view
of `a`: the words of `b` and the texts of `send` are user messages. The conversation's meta records
the speaker of each user message.
"""

from __future__ import annotations

from typing import Any, Final, Generic, Literal, Self, TypeVar

from hookline import (
    Agent,
    AssistantMessage,
    ChatStream,
    Conversation,
    Message,
    Response,
    Text,
    UserMessage,
)
from hookline.errors import UsageError
from hookline.events import ChatEvent

__all__ = ["Dialogue", "Side"]

D = TypeVar("D")
Side = Literal["a", "b"]
"""One of the two agents."""
META: Final = "hookline.dialogue"


class Dialogue(Generic[D]):
    """A conversation between two agents: an async iterator over the events of all turns, in order.

    `a` goes first and answers the text that you pass to `send`. If the last stored message is an
    answer of `a`, `b` begins. The dialogue ends after `turns` turns, or after `stop()`. It also
    ends when a side says nothing, waits for an approval, is stopped or raises. Leaving the dialogue
    early stops the current turn. Raises UsageError if `turns` is below 1, if both sides are the
    same agent, or if there is nothing to answer.
    """

    def __init__(
        self,
        a: Agent[D],
        b: Agent[D],
        *,
        conversation: Conversation | None = None,
        turns: int = 20,
        deps: Any = None,
    ) -> None:
        if turns < 1:
            raise UsageError(f"Dialogue(turns={turns!r}) must be at least 1")
        if a is b:
            raise UsageError(f"Dialogue: {a!r} cannot be both sides; pass two agents")
        self.conversation = conversation if conversation is not None else Conversation()
        """The conversation so far, from a's view."""
        self._agents: dict[Side, Agent[D]] = {"a": a, "b": b}
        self._turns_left = turns
        self._deps = deps
        last = self.conversation.messages[-1:]
        self._next: Side = "b" if last and last[0].role == "assistant" else "a"
        self._texts: list[str] = []  # by send(), for the next turn
        self._stopping = False
        self._unsaved = False
        self._turn: tuple[Side, ChatStream] | None = None

    def send(self, text: str) -> None:
        """Send a text to both sides, before the next turn."""
        if not text.strip():
            raise UsageError(f"send({text!r}) has no text; pass some text")
        self._texts.append(text)

    def say(self, side: Side) -> None:
        """Let this side speak in the next turn."""
        if side not in self._agents:
            raise UsageError(f"say({side!r}): there is no such side; pass 'a' or 'b'")
        self._next = side

    def stop(self) -> None:
        """End after the current turn."""
        self._stopping = True

    async def aclose(self) -> None:
        """End now and abort the current turn."""
        self._stopping = True
        turn, self._turn = self._turn, None
        if turn is not None:
            await turn[1].aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChatEvent:
        while True:
            if self._turn is None:
                self._turn = await self._begin()
            side, stream = turn = self._turn
            try:
                return await anext(stream)
            except StopAsyncIteration:
                if self._turn is not turn:  # another task has closed the dialogue
                    raise
                self._turn = None
                await self._finish(side, stream.response)
            except BaseException:
                await self.aclose()
                raise

    async def _begin(self) -> tuple[Side, ChatStream]:
        if self._stopping or self._turns_left < 1:
            raise StopAsyncIteration
        side = self._next
        while self._texts:
            self._add(self._texts[0], "user")
            del self._texts[0]  # only now: if the conversation is busy, `_add` raises
        await self._save()
        if self._stopping:  # in the meantime
            raise StopAsyncIteration
        talk = self.conversation if side == "a" else Conversation(_turned(self.conversation))
        if not talk.messages or talk.messages[-1].role != "user":
            raise UsageError(f"side {side!r} has nothing to answer; call send(text) first")
        self._turns_left -= 1
        self._next = "b" if side == "a" else "a"
        agent = self._agents[side]
        return side, agent.chat_stream(None, conversation=talk, deps=self._deps)

    async def _finish(self, side: Side, response: Response) -> None:
        if response.stop_reason is not None or not response.text.strip():
            self._stopping = True
        if side == "b" and response.text.strip():  # a's chat has written a's words itself
            self._add(response.text, "b")
            await self._save()

    def _add(self, text: str, side: str) -> None:
        """Add a user message for `a`, and record who said it."""
        talk = self.conversation
        sides: dict[str, str] = dict(talk.meta.get(META, {}))
        ids = {message.id for message in talk.messages}
        place = len(ids)
        while f"{side}-{place}" in ids:  # earlier messages were removed
            place += 1
        id = f"{side}-{place}"
        talk.meta[META] = {**sides, id: side}
        talk.restore([*talk.messages, UserMessage(id=id, parts=(Text(text),))])
        self._unsaved = True

    async def _save(self) -> None:
        """Save what was added; what could not be saved is saved with the next turn."""
        if self._unsaved and self.conversation.store is not None:
            await self.conversation.save()
        self._unsaved = False


def _turned(conversation: Conversation) -> list[Message]:
    """The conversation's text from b's view; consecutive texts of one side become one message."""
    sides: dict[str, str] = conversation.meta.get(META, {})
    words: list[tuple[bool, str]] = []  # (whether the words are b's, the words)
    for message in conversation.messages:
        if message.role == "tool" or not message.text.strip():
            continue
        own = sides.get(message.id) == "b"
        if words and words[-1][0] == own:
            words[-1] = own, f"{words[-1][1]}\n\n{message.text}"
        else:
            words.append((own, message.text))
    return [
        AssistantMessage(id=f"b-{place}", parts=(Text(text),), finish_reason="stop")
        if own
        else UserMessage(id=f"a-{place}", parts=(Text(text),))
        for place, (own, text) in enumerate(words)
    ]
