"""What the mappings of several providers share: media, schemas, settings, counts. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeGuard

import msgspec

from hookline import File, Image, Settings, Text, Tool, UserMessage
from hookline.errors import BadRequestError
from hookline.models import ModelRequest, ProviderTool

LITERALS: Final = ("enum", "default", "const", "examples")
NAMED: Final = ("properties", "$defs", "patternProperties")


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether this is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """Whether this is a JSON array."""
    return isinstance(value, (list, tuple))


def base64_text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def data_url(part: Image | File) -> str:
    """The part's bytes as a data URL."""
    assert part.data is not None
    return f"data:{part.media_type};base64,{base64_text(part.data)}"


def location(part: Image | File, provider: str) -> str:
    """Where a provider finds the part: its URL, or its bytes as one."""
    if part.data is not None:
        return data_url(part)
    if part.url is not None:
        return part.url
    kind = type(part).__name__
    raise BadRequestError(
        f"{provider}: an {kind} part has neither data nor url; give it one", provider=provider
    )


def refuse(provider: str, what: str, instead: str) -> BadRequestError:
    """The error for what a provider has no way to be told; nothing was sent."""
    return BadRequestError(f"{provider}: {what}; {instead}", provider=provider)


def said(message: UserMessage) -> Sequence[Text | Image | File]:
    """The parts of a user's message without blank text, of which providers want none."""
    return [part for part in message.parts if type(part) is not Text or part.text.strip()]


def merged(body: dict[str, Any], extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """The request with the provider options; an option of None takes a field out.

    Tools are added to ours, and an object of options to the one that is there.
    """
    for name, value in (extra or {}).items():
        there = body.get(name)
        if value is None:
            body.pop(name, None)
        elif name == "tools" and is_list(there) and is_list(value):
            body[name] = [*there, *value]
        elif is_object(there) and is_object(value):
            body[name] = {**there, **value}
        else:
            body[name] = value
    return body


def functions(request: ModelRequest) -> list[Tool[..., Any]]:
    """The tools that run here."""
    return [tool for tool in request.tools if not isinstance(tool, ProviderTool)]


def run_there(request: ModelRequest, provider: str) -> list[dict[str, Any]]:
    """The tools that this provider runs itself, in its words; it is told of no others."""
    return [
        dict(tool.entries[provider])
        for tool in request.tools
        if isinstance(tool, ProviderTool) and provider in tool.entries
    ]


def choice(settings: Settings, request: ModelRequest) -> str | None:
    """What `tool_choice` says, where there are tools to choose from."""
    return settings.tool_choice if request.tools else None


def count(usage: object, *path: str) -> int:
    """A number of tokens in what the provider told; 0 where it told none."""
    found: Any = usage
    for name in path:
        found = found.get(name) if is_object(found) else None
    return found if type(found) is int and found > 0 else 0


def text_in(event: Mapping[str, Any], name: str) -> str:
    """A field that is text; raises TypeError where it is something else, None is no text."""
    found = event.get(name)
    if found is None:
        return ""
    if type(found) is not str:
        raise TypeError(f"{name} is a {type(found).__name__}")
    return found


def index_in(event: Mapping[str, Any], name: str = "index") -> int:
    """A place in the answer; raises TypeError where it is no number, KeyError where it is none."""
    found = event[name]
    if type(found) is not int:
        raise TypeError(f"{name} is a {type(found).__name__}")
    return found


def name_in(call: Mapping[str, Any]) -> str:
    """The name of the tool that is called; raises ValueError for a call that names none."""
    found = text_in(call, "name")
    if not found:
        raise ValueError("a call without a name")
    return found


def own(meta: Mapping[str, Any] | None, provider: str) -> dict[str, Any]:
    """What this provider left in a part's or message's meta; another's means nothing to it."""
    found = meta.get(provider) if meta else None
    return found if is_object(found) else {}


def is_strict(schema: Any) -> bool:
    """Whether each object in a schema names all its fields and requires them.

    Providers that promise an answer of exactly this form take no other schemas.
    """
    strict = True

    def look(each: dict[str, Any]) -> dict[str, Any]:
        nonlocal strict
        if each.get("type") == "object":
            fields: dict[str, Any] = each.get("properties") or {}
            closed = each.get("additionalProperties", False) is False
            strict = strict and closed and bool(fields)
            strict = strict and set(each.get("required") or ()) == set(fields)
        return each

    _mapped(schema, look)
    return strict


def closed(schema: Any) -> Any:
    """The schema with each object saying that it has no further fields, where it says nothing."""

    def close(each: dict[str, Any]) -> dict[str, Any]:
        if each.get("type") == "object" and "properties" in each:
            each.setdefault("additionalProperties", False)
        return each

    return _mapped(schema, close)


def without(schema: Any, words: Sequence[str]) -> Any:
    """The schema without these words, which a provider does not take."""

    def drop(each: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in each.items() if name not in words}

    return _mapped(schema, drop)


def _mapped(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """A copy of a schema with each schema in it changed; names of fields are no words of it."""
    if is_list(schema):
        return [_mapped(each, change) for each in schema]
    if not is_object(schema):
        return schema
    out: dict[str, Any] = {}
    for name, each in schema.items():
        if name in NAMED and is_object(each):
            out[name] = {field: _mapped(inner, change) for field, inner in each.items()}
        else:
            out[name] = each if name in LITERALS else _mapped(each, change)
    return change(out)


def json_text(data: Any) -> str:
    """The compact JSON text of JSON data."""
    return msgspec.json.encode(data).decode()
