"""Run a guardrail's check with a time limit, and handle its exceptions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from inspect import isawaitable
from typing import Any, Literal, NamedTuple

from hookline import Run

Why = Literal["tripped", "failed", "timeout"]
_logger = logging.getLogger("hookline.hooks")


class Finding(NamedTuple):
    """Why the chat has to stop, and the text for the user."""

    why: Why
    text: str


async def judged(
    check: Callable[..., Any], seconds: float, text: str, name: str, what: Any, run: Run[Any]
) -> Finding | None:
    """Return the check's finding; None if the check passes."""
    scope = asyncio.timeout(seconds)
    try:
        async with scope:
            finding: Any = check(what, run)
            if isawaitable(finding):
                finding = await finding
    except asyncio.CancelledError as exc:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return _failed(name, text, exc)
    except TimeoutError as exc:
        if scope.expired():
            _logger.warning("guardrail %r exceeded its limit of %g s and tripped", name, seconds)
            return Finding("timeout", text)
        return _failed(name, text, exc)
    except Exception as exc:
        return _failed(name, text, exc)
    if finding is None:
        return None
    if isinstance(finding, str):
        return Finding("tripped", finding if finding.strip() else text)
    kind = type(finding).__name__
    _logger.warning("guardrail %r returned a %s and tripped: return None or a text", name, kind)
    return Finding("failed", text)


def _failed(name: str, text: str, exc: BaseException) -> Finding:
    _logger.warning("guardrail %r raised %s and tripped", name, type(exc).__name__)
    return Finding("failed", text)
