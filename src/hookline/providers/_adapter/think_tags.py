"""Split reasoning from text that a model writes with <think> and </think> tags. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

OPEN: Final = ("<think>", "<thinking>")
# Model families whose servers pass the tags on unless configured to parse them.
_FAMILIES: Final = re.compile(
    r"deepseek-r1|\br1\b|qwq|qwen-?3|magistral|marco-o1|minimax-m|glm-(4\.[1-9]|[5-9]|z1)|smollm3"
    r"|exaone-deep|nemotron|openthinker|phi-?4.*reasoning|cogito|kimi.*think|reka-flash-3",
    re.IGNORECASE,
)


def thinks_aloud(model: str) -> bool:
    """Return whether a model belongs to a family that writes its reasoning between tags."""
    return _FAMILIES.search(model) is not None


class ThinkTags:
    """Splits an answer into reasoning and text while it arrives, in pieces of any size.

    Only a tag at the beginning of the answer starts reasoning; a later tag is text.
    """

    __slots__ = ("_close", "_held", "_state")

    def __init__(self) -> None:
        self._state: Literal["begin", "inside", "after", "text"] = "begin"
        self._held: str = ""
        self._close: str = ""

    def take(self, text: str) -> Iterator[tuple[Literal["text", "reasoning"], str]]:
        """Split this piece, together with the text held back before."""
        if self._state == "text":
            yield "text", text
            return
        text, self._held = self._held + text, ""
        if self._state == "begin":
            start = text.lstrip()
            tag = next((tag for tag in OPEN if start.startswith(tag)), None)
            if tag is None:
                if any(each.startswith(start) for each in OPEN):
                    self._held = text
                    return
                self._state = "text"
                yield "text", text
                return
            self._state, self._close = "inside", f"</{tag[1:]}"
            text = start[len(tag) :].lstrip("\n")
        if self._state == "inside":
            thought, found, text = text.partition(self._close)
            if not found:
                keep = _begun(thought, self._close)
                self._held = thought[len(thought) - keep :]
                thought = thought[: len(thought) - keep]
            if thought:
                yield "reasoning", thought
            if not found:
                return
            self._state = "after"
        text = text.lstrip("\n")
        if text:
            self._state = "text"
            yield "text", text

    def end(self) -> Iterator[tuple[Literal["text", "reasoning"], str]]:
        """Return the text that was still held back when the answer ended."""
        if self._held:
            yield ("reasoning" if self._state == "inside" else "text"), self._held
            self._held = ""


def _begun(text: str, tag: str) -> int:
    """Return the number of characters at the end of the text that may begin the tag."""
    for size in range(min(len(text), len(tag) - 1), 0, -1):
        if tag.startswith(text[-size:]):
            return size
    return 0
