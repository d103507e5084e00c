"""What ready-made hooks share: where they stand in the order, and what they know of each chat."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any, Final, Generic, TypeAlias, TypeVar

from hookline import HookDef, Run, define_hook
from hookline.errors import UsageError
from hookline.models import ProviderTool
from hookline.points import OnChatEnd, PreRequest

T = TypeVar("T")
Hooks: TypeAlias = tuple[HookDef, ...]

GUARD: Final = 200  # refuses before anybody else has a say
INFRASTRUCTURE: Final = 100
LAST: Final = -10_000  # sees what all others have made of it; of wrappers, the innermost


def named(name: str, patterns: Iterable[str]) -> bool:
    """Whether one of these is the name; `*` stands for anything."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def not_by_the_provider(
    guard: str, names: Iterable[str], *, inherit: bool, required: bool
) -> HookDef:
    """A hook that refuses to rely on a guard for a tool that never comes by it.

    Its last moment is before the request is sent: hooks may have taken the tool out by then.
    """
    names = tuple(names)

    def check(ctx: PreRequest[Any]) -> None:
        for tool in ctx.request.tools:
            if isinstance(tool, ProviderTool) and (not names or named(tool.name, names)):
                raise UsageError(
                    f"{guard}() cannot hold {tool.name!r}, which the provider runs itself: remove "
                    "the tool, or keep it out with allow_tools() or a hook at preRequest"
                )

    return define_hook(
        "preRequest",
        check,
        name=guard,
        priority=LAST,
        inherit=inherit,
        required=required,
    )


class PerChat(Generic[T]):
    """One value for each chat that runs; `forget` is the hook that lets go of it."""

    def __init__(self, make: Callable[[Run[Any]], T]) -> None:
        self._make = make
        self._values: dict[str, T] = {}

    def of(self, run: Run[Any]) -> T:
        """This chat's value, made when it is first asked for."""
        value = self._values.get(run.chat_id)
        if value is None:
            value = self._values[run.chat_id] = self._make(run)
        return value

    def find(self, chat_id: str | None) -> T | None:
        """The value of that chat, if it runs and has one."""
        return self._values.get(chat_id) if chat_id is not None else None

    def __len__(self) -> int:
        return len(self._values)

    def forget(self, name: str, *, inherit: bool, required: bool) -> HookDef:
        """The hook of that name which forgets a chat's value when it ends."""

        def end(ctx: OnChatEnd[Any]) -> None:
            self._values.pop(ctx.run.chat_id, None)

        return define_hook(
            "onChatEnd", end, name=name, priority=LAST, inherit=inherit, required=required
        )
