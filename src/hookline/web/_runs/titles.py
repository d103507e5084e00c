"""The title of a conversation: the first words of its first message, as the message is stored.

A hook that runs after all other hooks at preMessage sets the title, so the title contains only what
they have left of the message. The store writes both together. A title of a user passes the hooks at
preMessageUpdate, as the text of a message in a conversation of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hookline import (
    Agent,
    Conversation,
    HookDef,
    MessageChanges,
    Text,
    UserMessage,
    define_hook,
)
from hookline.points import PreMessage

TITLE: Final = 60
"""The most characters of a title."""
HOOK: Final = "hookline.web title"
LAST: Final = -1_000_000  # after every redaction


def titling(on_title: Callable[[str], None] = lambda title: None) -> HookDef:
    """Return the hook that gives a conversation its title; `on_title` is called with the title."""

    def title(ctx: PreMessage[Any]) -> None:
        if isinstance(ctx.message, UserMessage) and not ctx.run.meta.get("title"):
            short = _short(ctx.message.text)
            if short:
                ctx.run.meta["title"] = short
                on_title(short)

    return define_hook("preMessage", title, name=HOOK, priority=LAST)


async def title_of(agent: Agent[Any], text: str, **options: Any) -> str:
    """Return a user's title as the hooks at preMessageUpdate leave it."""
    draft = Conversation([UserMessage(id=HOOK, parts=(Text(text),))])
    message = await agent.update_message(draft, HOOK, MessageChanges(text=text), **options)
    return _short(message.text)


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= TITLE else f"{words[: TITLE - 1]}…"
