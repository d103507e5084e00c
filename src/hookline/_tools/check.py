"""`@tool(check=…)`: the function that finds out whether a call has run, and how to call it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from hookline._base.errors import ToolDefinitionError
from hookline._base.messages import Data
from hookline._base.run import is_run
from hookline._tools.callables import is_async_callable, read_callable


class NotRun(Data, frozen=True):
    """Returned by `@tool(check=…)` if the call did not happen: the tool runs now."""


class Check(msgspec.Struct, frozen=True):
    """The function of `@tool(check=…)`, and how to call it."""

    fn: Callable[..., Any]
    takes: frozenset[str]  # the arguments of the tool that it takes
    injected: str | None  # its parameter for the run
    is_async: bool


def read_check(
    *,
    name: str,
    parameters: frozenset[str],
    check: Callable[..., Any] | Check | None,
    idempotent: bool,
    client: bool,
    **options: Any,
) -> Check | None:
    """Read the parameters of a check; raises ToolDefinitionError if it cannot be called."""
    if check is None:
        return None
    if idempotent or client:
        other = "idempotent" if idempotent else "client"
        raise ToolDefinitionError(
            name, f"check={check!r} is never asked with {other}=True; leave out one of the two"
        )
    if isinstance(check, Check):  # of the tool that this one is a copy of
        return check
    callee = read_callable(check, name)
    runs = [parameter for parameter, hint in callee.hints.items() if is_run(hint)]
    takes = frozenset(callee.parameters) - frozenset(runs)
    unknown = takes - parameters
    if unknown or len(runs) > 1:
        raise ToolDefinitionError(
            name,
            f"its check must not have the parameter {min(unknown or runs)!r}; give it parameters "
            "of the tool, and one Run if needed",
        )
    return Check(check, takes, runs[0] if runs else None, is_async_callable(check))
