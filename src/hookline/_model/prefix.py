"""How much of a request a provider's prompt cache can reuse: the start that did not change.

Providers cache from the start of a request: the tools, the system text, then the messages. The
first difference ends what can be reused. A part counts only as a whole, and messages are compared
as they are sent, without ids and usage. Settings are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Self

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

    if TYPE_CHECKING:  # by scripts/generate.py

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
        self._parts: list[tuple[str, Any]] = []
        self._sizes: list[int] = []

    def measure(self, request: ModelRequest) -> Prefix | None:
        """Compare the request with the one before, and remember it; None for the first one."""
        before, sizes = self._parts, self._sizes
        parts = list(_parts_of(request))
        same = 0
        for part, old in zip(parts, before, strict=False):
            if part[0] != old[0] or not _equal(part[1], old[1]):
                break
            same += 1
        self._parts = parts
        self._sizes = [*sizes[:same], *(_size(*part) for part in parts[same:])]
        if not before:
            return None
        differs = None
        if same < len(before):
            differs = parts[same][0] if same < len(parts) else before[same][0]
        return Prefix(
            tokens=_tokens(self._sizes),
            common=_tokens(sizes[:same]),
            lost=_tokens(sizes[same:]),
            differs=differs,
        )

    def copy(self) -> PrefixMeter:
        """Return a meter that remembers the same request."""
        meter = PrefixMeter()
        meter._parts, meter._sizes = self._parts, self._sizes
        return meter


def _tokens(sizes: list[int]) -> int:
    return -(-sum(sizes) // BYTES_PER_TOKEN)


def _parts_of(request: ModelRequest) -> Iterator[tuple[str, Any]]:
    """The parts in the order in which they are cached."""
    yield "model", model_name(request.model)
    for tool in request.tools:
        yield "tools", tool
    yield "tools", len(request.tools)  # so that a tool is never compared with a later part
    yield "output", request.output
    yield "system", request.system
    for place, message in enumerate(request.messages):
        yield f"messages[{place}]", message


def _equal(part: Any, old: Any) -> bool:
    return part is old or part == old or (_sent(part) == _sent(old))


def _sent(part: Any) -> Any:
    """The part as a provider sees it."""
    if isinstance(part, ToolMessage):
        return part.role, part.call_id, part.name, part.text, part.media
    if isinstance(part, ProviderTool):
        return part.name, part.entries
    if isinstance(part, Tool):
        return part.name, part.description, part.parameters
    if isinstance(part, (UserMessage, AssistantMessage)):
        return part.role, part.parts
    return part


def _size(label: str, part: Any) -> int:
    """The size of a part in bytes; the model's name and the number of tools are not sent."""
    is_sent = part is not None and label != "model" and not isinstance(part, int)
    return len(encoded(_sent(part))) if is_sent else 0
