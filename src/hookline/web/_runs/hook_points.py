"""The hook points of `hookline.web`, registered by class on `agent.bus`.

They fire outside of chats, so they have no `run`.
"""

from __future__ import annotations

from typing import Literal

from hookline import Observer

Thumb = Literal["up", "down"]


class OnClientAttached(Observer, frozen=True, kw_only=True):
    """A client has started to read an answer."""

    principal: str
    """The caller's name from `authorize=`, or "owner" for the bearer token."""
    conversation_id: str
    """The conversation's id, as the client knows it."""
    protocol: str
    """The protocol: native, ai-sdk or ag-ui."""
    readers: int
    """The number of clients that now read this answer, including the new client."""
    replay: bool = False
    """Whether the client joined a running answer, after a reload or in a second tab."""


class OnClientDetached(Observer, frozen=True, kw_only=True):
    """A client no longer reads an answer."""

    principal: str
    """The caller's name."""
    conversation_id: str
    """The conversation's id, as the client knows it."""
    protocol: str
    """The protocol: native, ai-sdk or ag-ui."""
    readers: int
    """The number of clients that still read this answer."""
    finished: bool
    """Whether the client has received the whole answer; False if the client left before the end."""


class OnFeedback(Observer, frozen=True, kw_only=True):
    """A user has rated an answer, or has withdrawn a rating."""

    principal: str
    """The caller's name."""
    conversation_id: str
    """The conversation's id, as the client knows it."""
    message_id: str
    """The id of the rated answer, an AssistantMessage of the conversation."""
    value: Thumb | None
    """The rating; None if the user has withdrawn the rating."""
    comment: str = ""
    """The user's comment on the rating."""
