"""Combine the settings of a model with those of a request. Pure.

A model has settings of its provider's type, which are the defaults. An agent, a chat or preChat
changes the fields that all providers share. `Settings.extra` holds fields for a single provider's
request under that provider's name; no other provider receives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

from hookline import Settings
from hookline.errors import UsageError
from hookline.providers._adapter.json_fields import is_list, is_object

S = TypeVar("S", bound=Settings)

# Request fields with object values, which could be mistaken for names of providers.
_FIELDS: Final = frozenset(
    {
        *("audio", "cache_control", "container", "context_management", "extra_body"),
        *("extra_headers", "extra_query", "http_options", "image_config", "labels", "logit_bias"),
        *("metadata", "moderation", "options", "output_config", "prediction", "prompt"),
        *("prompt_cache_options", "reasoning", "response_format", "speech_config"),
        *("stream_options", "text", "thinking", "thinking_config", "tool_choice", "tool_config"),
        "web_search_options",
    }
)


def effective(own: S, settings: Settings) -> S:
    """Return the model's settings, overridden by the request's fields.

    Raises UsageError for a provider's settings that were passed to an agent or a chat.
    """
    if type(settings) is not Settings:
        kind = type(settings).__name__
        raise UsageError(
            f"settings={kind}(…) must be passed to the model, as in "
            f'Model("…", settings={kind}(…)); for one chat use Settings(extra={{"provider": …}})'
        )
    return cast("S", settings.replace(extra=None).over(own))


def with_extra(body: dict[str, Any], provider: str, *settings: Settings) -> dict[str, Any]:
    """Merge the entries of `Settings.extra` for this provider into the request, the weakest first.

    Raises UsageError for an entry that does not name a provider.
    """
    for group in settings:
        for name, fields in (group.extra or {}).items():
            if not is_object(fields) or name in _FIELDS:
                raise UsageError(
                    f"Settings.extra={{{name!r}: …}} must be grouped by provider, as in "
                    f"extra={{{provider!r}: {{{name!r}: …}}}}"
                )
        merge(body, (group.extra or {}).get(provider))
    return body


def merge(body: dict[str, Any], extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """Merge the provider options into the request; an option of None removes a field.

    Tools are added to the existing tools, and an object is merged into the existing object.
    """
    for name, value in (extra or {}).items():
        current = body.get(name)
        if value is None:
            body.pop(name, None)
        elif name == "tools" and is_list(current) and is_list(value):
            body[name] = [*current, *value]
        elif is_object(current) and is_object(value):
            body[name] = {**current, **value}
        else:
            body[name] = value
    return body


def put(body: dict[str, Any], fields: Mapping[str, Any]) -> None:
    """Add the fields that are set to the body."""
    for name, value in fields.items():
        if value is not None and value != () and value != {}:
            is_tuple = isinstance(value, tuple)
            # The value is Any, so its items may be anything, too.
            body[name] = list(value) if is_tuple else value  # pyright: ignore[reportUnknownArgumentType]


def same_names(settings: Settings, *names: str) -> dict[str, Any]:
    """Return the settings that have these names in the request, too."""
    return {name: getattr(settings, name) for name in names}
