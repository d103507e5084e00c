"""The table of doors by name: "sqlite:///chats.db" becomes a store. Imported when named."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from hookline._errors import UsageError
from hookline._store import Store

STORES: Final = {
    "sqlite": ("sqlite", "hookline.stores.sql", "SQLStore"),
    "postgresql": ("postgres", "hookline.stores.sql", "SQLStore"),
    "postgres": ("postgres", "hookline.stores.sql", "SQLStore"),
}


def resolve_store(url: str) -> Store:
    """The store of that URL; raises UsageError where no store has it, or a package is missing."""
    scheme = url.partition(":")[0].partition("+")[0]
    if scheme not in STORES:
        known = ", ".join(f"{each}:…" for each in STORES)
        raise UsageError(f"store={url!r}: there is no store of that name; there are {known}")
    extra, module, name = STORES[scheme]
    try:
        make: Any = getattr(import_module(module), name)
    except ModuleNotFoundError as exc:
        if str(exc.name).startswith("hookline"):
            raise
        raise UsageError(
            f'store={url!r} needs {exc.name}: pip install "hookline[{extra}]"'
        ) from exc
    store: Store = make(url)
    return store
