"""How much of a request a provider's prompt cache can reuse: the start that did not change.

Providers cache from the start of a request: the tools, the system text, then the messages. The
first difference ends what can be reused. A part counts only as a whole, and messages are compared
as they are sent, without ids and usage. Settings are not compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from hookline._base.messages import AssistantMessage, Data, ToolMessage, UserMessage, encoded
from hookline._model.model import ModelRequest, model_name
from hookline._tools.tool import ProviderTool, Tool

BYTES_PER_TOKEN: Final = 4


class Prefix(Data, frozen=True, kw_only=True):
    """What a request has in common with the request before it, from the start on.

    Tokens are estimated: a quarter of the size in bytes.
    """

    tokens: int
    """The tokens of the request."""
    common: int
    """The tokens of its start that equal the start of the request before."""
    lost: int
    """The tokens of the request before that cannot be reused; 0 if the request only adds."""
    differs: str | None
    """The first difference: "model", "tools", "output", "system" or "messages[3]"; None if the
    request only adds."""

    @property
    def share(self) -> float:
        """The part of the request that equals the start of the request before, from 0 to 1."""
        return self.common / self.tokens if self.tokens else 1.0

    @property
    def reused(self) -> float:
        """The part of the request before that can be reused, from 0 to 1."""
        return self.common / (self.common + self.lost) if self.lost else 1.0

    if TYPE_CHECKING:  # by scripts/dev/generate.py

        def replace(
            self,
            *,
            tokens: int = ...,
            common: int = ...,
            lost: int = ...,
            differs: str | None = ...,
        ) -> Self: ...


class PrefixMeter:
    """Measures each request against the one before it; one meter for each conversation."""

    __slots__ = ("_parts", "_sizes")

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._sizes: list[int] = []

    def measure(self, request: ModelRequest) -> Prefix | None:
        """Compare the request with the one before, and remember it; None for the first one."""
        before, sizes = self._parts, self._sizes
        parts = self._parts = _parts_of(request)
        same = 0
        for part, old in zip(parts, before, strict=False):
            if part is not old and _content(part) != _content(old):
                break
            same += 1
        self._sizes = [*sizes[:same], *map(_size, parts[same:])]
        if not before:
            return None
        return Prefix(
            tokens=_tokens(self._sizes),
            common=_tokens(sizes[:same]),
            lost=_tokens(sizes[same:]),
            differs=None if same == len(before) else _label(request, same),
        )

    def copy(self) -> PrefixMeter:
        """Return a meter that remembers the same request."""
        meter = PrefixMeter()
        meter._parts, meter._sizes = self._parts, self._sizes
        return meter


class _Unsent(NamedTuple):
    """A part that is compared but not sent."""

    value: Any


def _parts_of(request: ModelRequest) -> list[Any]:
    """The parts in the order in which they are cached.

    The number of tools stands behind them, so that a tool is never compared with a later part.
    """
    model, tools = _Unsent(model_name(request.model)), request.tools
    number = _Unsent(len(tools))
    return [model, *tools, number, request.output, request.system, *request.messages]


def _label(request: ModelRequest, place: int) -> str:
    """The name of the part at this place."""
    place -= 1 + len(request.tools)
    if place < 0:
        return "tools" if place + len(request.tools) >= 0 else "model"
    return ("tools", "output", "system")[place] if place < 3 else f"messages[{place - 3}]"


def _tokens(sizes: list[int]) -> int:
    return -(-sum(sizes) // BYTES_PER_TOKEN)


def _content(part: Any) -> Any:
    """The part as a provider sees it."""
    match part:
        case ToolMessage():
            return part.role, part.call_id, part.name, part.text, part.media
        case UserMessage() | AssistantMessage():
            return part.role, part.parts
        case ProviderTool():
            return part.name, part.entries
        case Tool():
            return part.name, part.description, part.parameters
        case _:
            return part


def _size(part: Any) -> int:
    """The size of a part in bytes."""
    return 0 if part is None or isinstance(part, _Unsent) else len(encoded(_content(part)))
