"""`cache`: answer a repeated request without calling the model again.

A hit is streamed like any answer, with one delta per part, and costs no tokens. The key covers the
whole input of the model, but not the ids of messages and calls, so that chats with tools can be
replayed from the cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from time import monotonic
from typing import Any, Protocol, cast

import msgspec

from hookline import AssistantMessage, ModelRequest, ModelResponse
from hookline.hooks._common import INFRASTRUCTURE, CallModel, Hooks, definer
from hookline.points import AroundRequest


class CacheStore(Protocol):
    """A store of answers: `MemoryCache`, or any object with these two methods."""

    async def get(self, key: str, /) -> bytes | None:
        """Return the bytes that are stored under this key; None if there are no bytes."""
        ...

    async def set(self, key: str, value: bytes, /) -> None:
        """Store the bytes under this key. The store decides how long it keeps the bytes."""
        ...


class MemoryCache:
    """A cache that keeps the `size` most recently used answers.

    Answers expire after `ttl` seconds.
    """

    def __init__(
        self,
        size: int = 1024,
        *,
        ttl: float | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._size = size
        self._ttl = ttl
        self._clock = clock
        self._entries: OrderedDict[str, tuple[float, bytes]] = OrderedDict()

    async def get(self, key: str, /) -> bytes | None:
        """Return the bytes that are stored under this key; None if they are missing or expired."""
        start, value = self._entries.get(key, (0.0, None))
        if value is None:
            return None
        if self._ttl is not None and self._clock() - start >= self._ttl:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return value

    async def set(self, key: str, value: bytes, /) -> None:
        """Store the bytes; if the cache is full, remove the least recently used entries."""
        self._entries[key] = (self._clock(), value)
        self._entries.move_to_end(key)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)


def request_key(request: ModelRequest) -> str:
    """Return a digest of the model's whole input."""
    model: Any = request.model
    name = getattr(model, "name", None)
    ids: dict[str, int] = {}
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                ids.setdefault(call.id, len(ids))
    data = (
        type(model).__qualname__,
        [getattr(model, "provider", None), name] if name else id(model),
        request.system,
        request.settings,
        [(tool.name, tool.description, tool.parameters) for tool in request.tools],
        [_bare(msgspec.to_builtins(message), ids) for message in request.messages],
    )
    return sha256(msgspec.json.encode(data)).hexdigest()


def _bare(message: dict[str, Any], ids: dict[str, int]) -> list[Any]:
    """A message as the model sees it, with its calls numbered."""
    if message["role"] == "tool":
        call = ids.get(message["call_id"], message["call_id"])
        return ["tool", call, message["name"], message["text"], message["media"]]
    parts = cast("list[dict[str, Any]]", message["parts"])
    return [
        message["role"],
        [{**part, "id": ids[part["id"]]} if part["part"] == "call" else part for part in parts],
    ]


def cache(
    store: CacheStore | None = None,
    *,
    key: Callable[[ModelRequest], str | None] = request_key,
    priority: int = INFRASTRUCTURE + 5,  # inside `fallback`, outside `retry`
    inherit: bool = False,
    required: bool = False,
) -> Hooks:
    """Answer repeated requests from a cache, which stores only complete answers.

    `cache` runs inside `fallback`, so each model has its own answers. `key` may return None for a
    request that must not be cached. If the store fails, the error is
    logged and the model is called.
    """
    answers: CacheStore = store if store is not None else MemoryCache()

    async def answer(ctx: AroundRequest[Any], proceed: CallModel) -> ModelResponse:
        name = key(ctx.request)
        if name is None:
            return await proceed()
        data = await answers.get(name)
        if data is not None:
            response = msgspec.json.decode(data, type=ModelResponse)
            return response.replace(usage=None, response_id=None)
        response = await proceed()
        if response.finish_reason in ("stop", "tool_calls"):
            await answers.set(name, response.to_json())
        return response

    add = definer(name="cache", inherit=inherit, required=required)
    return (add("aroundRequest", answer, priority=priority, on_error="log"),)
