"""What the requests to several providers have in common: media, messages, tools. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from hookline import (
    AssistantMessage,
    File,
    Image,
    Message,
    Settings,
    Text,
    ToolMessage,
    UserMessage,
)
from hookline.errors import BadRequestError
from hookline.models import ModelRequest, ProviderTool
from hookline.providers._adapter.json_fields import is_object


def record(value: object, types: frozenset[str]) -> dict[str, Any] | None:
    """Return the record of a provider's tool, if it is of one of these types. Other items, such as
    messages, are made only from hookline's own messages.
    """
    if not is_object(value) or value.get("type") not in types or "role" in value:
        return None
    return dict(value)


def base64_text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def location(part: Image | File, provider: str) -> str:
    """Return the URL of a part, or a data URL with its bytes."""
    if part.data is not None:
        return f"data:{part.media_type};base64,{base64_text(part.data)}"
    if part.url is not None:
        return part.url
    what = f"a part of type {type(part).__name__} has neither data nor url"
    raise refuse(provider, what, "set one of them")


def refuse(provider: str, what: str, instead: str) -> BadRequestError:
    """Build the error for unsupported content; nothing was sent."""
    return BadRequestError(f"{provider}: {what}; {instead}", provider=provider)


def user_parts(message: UserMessage) -> Sequence[Text | Image | File]:
    """Return the parts of a user message without blank texts, which providers refuse."""
    return [part for part in message.parts if type(part) is not Text or part.text.strip()]


def showing(messages: Sequence[Message], provider: str) -> Sequence[Message]:
    """Return the messages, with images from other models moved to user messages.

    A model needs to see the image that it is asked to change, but accepts only its own images in an
    answer.
    """
    if not any(isinstance(message, AssistantMessage) and message.files for message in messages):
        return messages
    out: list[Message] = []
    waiting: list[Image] = []  # until the results of the answer's calls follow
    for message in messages:
        if waiting and not isinstance(message, ToolMessage):
            out.append(_images_message(waiting))
            waiting = []
        out.append(message)
        if isinstance(message, AssistantMessage):
            waiting += [
                part
                for part in message.files
                if isinstance(part, Image) and provider not in (part.meta or {})
            ]
    if waiting and isinstance(out[-1], ToolMessage):
        out.append(_images_message(waiting))
    return out


def _images_message(pictures: Sequence[Image]) -> UserMessage:
    return UserMessage(parts=(Text("Images that you have made:"), *pictures))


def functions(request: ModelRequest, schema: str = "parameters") -> list[dict[str, Any]]:
    """Describe the tools that run in this process; `schema` is the field for their parameters."""
    return [
        {"name": tool.name, "description": tool.description, schema: tool.parameters}
        for tool in request.tools
        if not isinstance(tool, ProviderTool)
    ]


def run_there(request: ModelRequest, provider: str) -> list[dict[str, Any]]:
    """Return the tools that this provider runs, in its own format; tools of others are left out."""
    return [
        dict(tool.entries[provider])
        for tool in request.tools
        if isinstance(tool, ProviderTool) and provider in tool.entries
    ]


def choice(settings: Settings, request: ModelRequest) -> str | None:
    """Return `tool_choice`, if there are tools to choose from."""
    return settings.tool_choice if request.tools else None
