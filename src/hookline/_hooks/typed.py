"""The types of `add_hook`, `hook` and `define_hook`, as they exist at run time.

Type checkers use `typed.pyi`, which is generated from the table and has one overload per hook
point. At run time the overloads are not needed, and would take a tenth of the import time.
"""

from __future__ import annotations

from typing import Generic

from hookline._base.run import D


class AddHook(Generic[D]):
    """The type of `add_hook`."""


class HookDecorator(Generic[D]):
    """The type of `hook`."""


class DefineHook:
    """The type of `define_hook`."""
