"""`retry` and `fallback`: call the model again, or another model.

They wrap only the model call, so no tool ever runs again because of them. If part of a failed
answer was already shown, a `ResponseReset` retracts it before the next attempt begins.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from hookline import Model, ModelRequest, ModelResponse
from hookline.errors import ModelError, StopChat, UsageError
from hookline.hooks._common import INFRASTRUCTURE, CallModel, Hooks, definer
from hookline.models import model_name
from hookline.points import AroundRequest

On = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]
"""The errors after which a model is called again: types, or a function of the error."""


def _retryable(exc: Exception) -> bool:
    return isinstance(exc, ModelError) and exc.retryable


def _says(on: On) -> Callable[[Exception], bool]:
    def says(exc: Exception) -> bool:
        if isinstance(exc, StopChat):  # not an error, but a hook's decision
            return False
        return isinstance(exc, on) if isinstance(on, (type, tuple)) else on(exc)

    return says


def retry(
    attempts: int = 3,
    *,
    base: float = 0.5,
    longest: float = 30.0,
    patience: float = 60.0,
    on: On = _retryable,
    priority: int = INFRASTRUCTURE,
    inherit: bool = False,
    required: bool = False,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    draw: Callable[[], float] = random.random,
) -> Hooks:
    """Call the model again after a temporary error, with at most `attempts` calls in total.

    The wait before retry number n is a random part of `base * 2 ** (n - 1)` seconds. If `longest`
    is less, the wait is a random part of `longest`. If the service asks for a longer wait
    (`retry_after`), the hook waits that long. If the service asks for a wait of more than
    `patience` seconds, the error is raised. `on` is one error type, several error types, or a
    function that takes the error. The default is every `ModelError` that is `retryable`. Before
    each wait, the hook reports the status `retrying`. Raises UsageError if `attempts` is below 1.
    """
    if attempts < 1:
        raise UsageError(f"attempts={attempts!r} must be at least 1")
    helps = _says(on)

    async def again(ctx: AroundRequest[Any], proceed: CallModel) -> ModelResponse:
        for attempt in range(1, attempts):
            try:
                return await proceed()
            except Exception as exc:
                delay = getattr(exc, "retry_after", None) or 0.0
                if not helps(exc) or delay > patience:
                    raise
                wait = max(delay, draw() * min(longest, base * 2.0 ** min(attempt - 1, 99)))
                why = _why(exc)
            data = {"attempt": attempt + 1, "of": attempts, "wait": round(wait, 3)}
            await ctx.run.status("retrying", {**data, **why})
            await sleep(wait)
        return await proceed()

    add = definer(name="retry", inherit=inherit, required=required)
    return (add("aroundRequest", again, priority=priority),)


def fallback(
    *models: Model,
    on: On = ModelError,
    priority: int = INFRASTRUCTURE + 10,
    inherit: bool = False,
    required: bool = False,
) -> Hooks:
    """If a model fails, call the next of these models. If all models fail, raise the last error.

    `on` is one error type, several error types, or a function that takes the error. The default is
    every `ModelError`. `fallback` wraps `retry`, so each model is retried before the next model is
    called. Before each change of the model, the hook reports the status `falling-back`. Raises
    UsageError if no model is given.
    """
    if not models:
        raise UsageError("fallback() needs at least one model; pass the models to fall back on")
    for model in models:
        if not callable(getattr(model, "stream", None)):
            raise UsageError(
                f"fallback({model!r}) must be a model, not a {type(model).__name__}; to use a name "
                "such as 'openai:gpt-5-mini', pass hookline.models.resolve_model(name)"
            )
    helps = _says(on)

    async def others(ctx: AroundRequest[Any], proceed: CallModel) -> ModelResponse:
        request: ModelRequest = ctx.request
        for model in models:
            try:
                return await proceed(request)
            except Exception as exc:
                if not helps(exc):
                    raise
                why = _why(exc)
            data = {"from": model_name(request.model), "to": model_name(model)}
            await ctx.run.status("falling-back", {**data, **why})
            request = ctx.request.replace(model=model)
        return await proceed(request)

    add = definer(name="fallback", inherit=inherit, required=required)
    return (add("aroundRequest", others, priority=priority),)


def _why(exc: Exception) -> dict[str, Any]:
    """Return the error's type and the service's codes, but never the error's text."""
    details = {key: getattr(exc, key, None) for key in ("status", "code")}
    data = {key: value for key, value in details.items() if isinstance(value, (int, str))}
    return {"error": type(exc).__name__, **data}
