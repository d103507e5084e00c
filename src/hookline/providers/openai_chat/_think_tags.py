"""Split reasoning from text that a model writes with <think> and </think> tags. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

OPEN: Final = ("<think>", "<thinking>")


class ThinkTags:
    """Splits an answer into reasoning and text while it arrives, in pieces of any size.

    Only a tag at the beginning of the answer starts reasoning: a later tag, such as one in code, is
    text.
    """

    __slots__ = ("_close", "_rest", "_state")

    def __init__(self) -> None:
        self._state: Literal["begin", "open", "inside", "after", "text"] = "begin"
        self._rest: str = ""
        self._close: str = ""

    def take(self, text: str) -> Iterator[tuple[Literal["text", "reasoning"], str]]:
        """Split this piece, together with the text held back before."""
        if self._state == "text":
            yield "text", text
            return
        text, self._rest = self._rest + text, ""
        if self._state == "begin":
            start = text.lstrip()
            tag = next((tag for tag in OPEN if start.startswith(tag)), None)
            if tag is None:
                if any(tag.startswith(start) for tag in OPEN):
                    self._rest = text
                    return
                self._state = "text"
                yield "text", text
                return
            self._state, self._close = "open", f"</{tag[1:]}"
            text = start[len(tag) :]
        if self._state == "open":
            text = text.lstrip("\n")
            if not text:
                return
            self._state = "inside"
        if self._state == "inside":
            thought, end_tag, text = text.partition(self._close)
            if not end_tag:
                keep = _prefix_length(thought, self._close)
                self._rest = thought[len(thought) - keep :]
                thought = thought[: len(thought) - keep]
            if thought:
                yield "reasoning", thought
            if not end_tag:
                return
            self._state = "after"
        text = text.lstrip("\n")
        if text:
            self._state = "text"
            yield "text", text

    def end(self) -> Iterator[tuple[Literal["text", "reasoning"], str]]:
        """Return the text that was still held back when the answer ended."""
        if self._rest:
            yield ("reasoning" if self._state == "inside" else "text"), self._rest
            self._rest = ""


def _prefix_length(text: str, tag: str) -> int:
    """Return the number of characters at the end of the text that may begin the tag."""
    for size in range(min(len(text), len(tag) - 1), 0, -1):
        if tag.startswith(text[-size:]):
            return size
    return 0
