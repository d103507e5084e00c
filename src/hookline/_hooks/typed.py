"""The types of `add_hook`, `hook` and `define_hook`: what there is of them while a program runs.

What type checkers see stands in `typed.pyi`, which is made from the table: one overload per hook
point. Here they would cost a tenth of the import, and nothing would look at them.
"""

from __future__ import annotations

from typing import Generic

from hookline._base.run import D


class AddHook(Generic[D]):
    """What `add_hook` is."""


class HookDecorator(Generic[D]):
    """What `hook` is."""


class DefineHook:
    """What `define_hook` is."""
