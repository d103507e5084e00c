"""A clock that jumps: a call without an end runs out of time, and nobody has waited for it."""

from __future__ import annotations

import asyncio
from typing import Any

from hookline import Agent


def jump_in(agent: Agent[Any], name: str, seconds: float = 61.0) -> None:
    """Put the loop's clock ahead soon after a call of this tool has begun."""
    loop: Any = asyncio.get_running_loop()
    real, ahead = loop.time, [0.0]
    loop.time = lambda: real() + ahead[0]

    def jump() -> None:
        ahead[0] += seconds

    def soon(ctx: Any) -> None:
        if ctx.call.name == name:
            loop.call_later(0.2, jump)

    agent.add_hook("preToolCall", soon)
