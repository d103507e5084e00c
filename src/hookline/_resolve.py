"""Providers and stores by name: "openai:gpt-…" becomes a model, "sqlite:///chats.db" a store.

A module is imported when its name is used. Another package can add a prefix for models with an
entry point in the group `hookline.models`: the entry point's name is the prefix, and its object is
called with the rest of the model's name.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any, Final

from typing_extensions import get_protocol_members

from hookline._base.errors import UsageError
from hookline._conversations.store import Store
from hookline._model.model import Model

MODEL_ENTRY_POINTS: Final = "hookline.models"
"""The group of entry points with which an installed package adds a prefix for models."""
MODELS: Final = {
    "openai": ("hookline.providers.openai", "OpenAIModel"),
    "openai-chat": ("hookline.providers.openai_chat", "OpenAIChatModel"),
    "anthropic": ("hookline.providers.anthropic", "AnthropicModel"),
    "google": ("hookline.providers.google", "GoogleModel"),
}
"""The models with formats of their own. `providers/presets.py` has services that use them."""


def model_of(value: Any) -> Model:
    """Return the given model, or the model of this name; raises UsageError for anything else."""
    model = resolve_model(value) if isinstance(value, str) else value
    if not isinstance(model, Model):
        raise UsageError(
            f"model={model!r} is not a Model: it has no method stream(request) that returns an "
            "async iterator of chunks; pass a Model, or a name such as 'openai:gpt-…'"
        )
    return model


def resolve_model(name: str) -> Model:
    """Return the model of this name; raises UsageError for an unknown prefix or missing package."""
    prefix, _, rest = name.partition(":")
    if not rest:
        raise UsageError(f"model={name!r} must begin with a provider; use one of: {_model_names()}")
    if prefix in MODELS:
        module, attribute = MODELS[prefix]
        make: Any = getattr(import_module(module), attribute)
    elif prefix in _presets().PRESETS:
        make = partial(_presets().preset, prefix)
    else:
        make = _registered(prefix, name)
    model: Any = make(rest)
    if not isinstance(model, Model):
        raise UsageError(
            f"the entry point {prefix!r} of {MODEL_ENTRY_POINTS!r} returned {model!r}, which is "
            "not a Model: it has no method stream(request); fix or remove that package"
        )
    return model


def _presets() -> Any:
    return import_module("hookline.providers.presets")


def _registered(prefix: str, name: str) -> Any:
    from importlib.metadata import entry_points  # only here: it costs milliseconds of an import

    points = list(entry_points(group=MODEL_ENTRY_POINTS, name=prefix))
    if not points:
        raise UsageError(
            f"model={name!r}: there is no provider {prefix!r}; use one of: {_model_names()}"
        )
    if len({point.value for point in points}) > 1:
        values = ", ".join(sorted(point.value for point in points))
        raise UsageError(
            f"model={name!r}: {prefix!r} is registered more than once ({values}); "
            "remove all but one of these packages"
        )
    return points[0].load()


def _model_names() -> str:
    from importlib.metadata import entry_points

    ours = [*MODELS, *_presets().PRESETS]
    others = {point.name for point in entry_points(group=MODEL_ENTRY_POINTS)} - set(ours)
    return ", ".join(f"{name}:…" for name in [*ours, *sorted(others)])


# ── stores ──────────────────────────────────────────────────────────────────────────────────

STORES: Final = {"sqlite": "sqlite", "postgresql": "postgres", "postgres": "postgres"}
"""The schemes of the URLs, and the extra that each needs."""
STORE_MEMBERS: Final = get_protocol_members(Store)
"""What a store has. From Python 3.12 on, `isinstance` does not see what `__getattr__` gives."""


def store_of(store: Any) -> Store | None:
    """Return the given store, or the store for this URL; raises UsageError for anything else."""
    if isinstance(store, str):
        return resolve_store(store)
    if store is None or all(hasattr(store, name) for name in STORE_MEMBERS):
        fitting: Store | None = store
        return fitting
    raise UsageError(
        f"store= is not a store, but of type {type(store).__name__}: pass MemoryStore(), a URL "
        "such as 'sqlite:///chats.db', or an object with the methods of hookline.storage.Store"
    )


def resolve_store(url: str) -> Store:
    """Return the store for this URL; raises UsageError for an unknown scheme or missing package."""
    scheme = url.partition(":")[0].partition("+")[0]
    if scheme not in STORES:
        schemes = ", ".join(f"{name}:…" for name in STORES)
        raise UsageError(
            f"store={shown_url(url)!r}: there is no store for this URL; use one of: {schemes}"
        )
    try:
        sql: Any = import_module("hookline.stores")
    except ModuleNotFoundError as exc:
        if str(exc.name).startswith("hookline"):  # our own module: no extra would help
            raise
        raise UsageError(
            f'store={shown_url(url)!r} needs {exc.name}: pip install "hookline[{STORES[scheme]}]"'
        ) from exc
    store: Store = sql.SQLStore(url)
    return store


def shown_url(url: str) -> str:
    """Return the URL without its password, so that errors can show it."""
    scheme, sep, rest = url.partition("://")
    if not sep:
        return url if not any(sign in url for sign in ":@?") else "…"
    if not scheme.replace("+", "").isidentifier():
        return "…"
    plain = rest.startswith("/") and not any(sign in rest for sign in "@?")
    return url if plain else f"{scheme}://…"
