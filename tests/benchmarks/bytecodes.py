"""Bytecodes: how many CPython executes for a piece of work, and in whose modules; also its calls.

Unlike times they are the same on a busy machine. What is done in C is not seen: they are for
comparing work of the same kind, before and after a change.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from inspect import CO_COROUTINE, currentframe
from types import FrameType
from typing import Any

from .measure import Work

Where = Mapping[str, str]  # a part of a file's path → the name of those modules; the first counts


async def count(work: Work, where: Where) -> Counter[str]:
    """The bytecodes of one run, by name."""
    found: Counter[str] = Counter()
    names: dict[str, str] = {}

    def name_of(path: str) -> str:
        return next((name for part, name in where.items() if part in path), "")

    def trace(frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            path = frame.f_code.co_filename
            name = names.get(path) or names.setdefault(path, name_of(path))
            found[name] += 1
        return trace

    frame = currentframe()
    assert frame
    frame.f_trace_opcodes = True  # or Python 3.12 traces no opcodes at first
    await _traced(work, trace)
    return found


async def count_calls(work: Work) -> tuple[int, int]:
    """The calls of Python functions in one run, each resumption included, and the coroutines."""
    calls = 0
    coroutines: set[FrameType] = set()  # a resumed coroutine has the frame that it had before

    def trace(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal calls
        calls += 1
        if frame.f_code.co_flags & CO_COROUTINE:
            coroutines.add(frame)

    await _traced(work, trace)
    return calls, len(coroutines)


async def _traced(work: Work, trace: Callable[..., Any]) -> None:
    await work()  # what is done only once is not counted
    before = sys.gettrace()
    gc.collect()
    gc.disable()  # its moments differ, and so does what it counts: finalizers, weak references
    sys.settrace(trace)
    try:
        await work()
    finally:
        sys.settrace(before)
        gc.enable()
