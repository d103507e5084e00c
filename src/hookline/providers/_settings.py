"""What a request is to be made with: the model's settings, and over them the request's. Pure.

A model has settings of its provider's kind, which are the weakest; agent, chat and preChat change
fields that every provider knows. `Settings.extra` holds fields of one provider's request under that
provider's name, and goes to nobody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from hookline import Settings
from hookline.errors import UsageError
from hookline.providers._parts import is_object, merged

S = TypeVar("S", bound=Settings)

# Fields of requests that are objects, which one might take for the name of a provider.
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


def effective(own: S, given: Settings) -> S:
    """The model's settings with the request's fields in place of its own.

    Raises UsageError for settings of a provider that were given to an agent or a chat.
    """
    if type(given) is not Settings:
        kind = type(given).__name__
        raise UsageError(
            f"settings={kind}(…) belongs to the model: pass it there, as in "
            f'Model("…", settings={kind}(…)); for one chat use Settings(extra={{"provider": …}})'
        )
    changes = {
        name: value
        for name in Settings.__struct_fields__
        if name != "extra" and (value := getattr(given, name)) not in (None, ())
    }
    return msgspec.structs.replace(own, **changes) if changes else own


def with_extra(body: dict[str, Any], provider: str, *settings: Settings) -> dict[str, Any]:
    """The request with what `Settings.extra` has for this provider, the weakest first.

    Raises UsageError for an entry that names no provider.
    """
    for each in settings:
        for name, fields in (each.extra or {}).items():
            if not is_object(fields) or name in _FIELDS:
                raise UsageError(
                    f"Settings.extra={{{name!r}: …}} must name the provider that it is for: "
                    f"extra={{{provider!r}: {{{name!r}: …}}}}"
                )
        merged(body, (each.extra or {}).get(provider))
    return body


def put(body: dict[str, Any], fields: Mapping[str, Any]) -> None:
    """Put in the fields that are set."""
    for name, value in fields.items():
        if value is not None and value != () and value != {}:
            listed = isinstance(value, tuple)
            # The value is Any, and so may be what is in it.
            body[name] = list(value) if listed else value  # pyright: ignore[reportUnknownArgumentType]
