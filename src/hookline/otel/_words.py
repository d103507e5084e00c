"""What spans and metrics say of a model, of a tool, of a hook.

A chat says the same of its model and its tools at each step. So the words are put together once for
each chat, and a span's own are added to a copy. What is here is never changed: an SDK may keep it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hookline import Model, Settings, Tool, Usage
from hookline.models import model_name
from hookline.otel import _names as names

_NO_SETTINGS: Final = Settings()


class Points(NamedTuple):
    """The dimensions of a model call that was answered: its own, and those of its tokens."""

    call: dict[str, Any]
    input: dict[str, Any]
    output: dict[str, Any]


class ModelWords:
    """Of a model that is asked with these settings."""

    __slots__ = ("_points", "first", "labels", "model", "name", "settings")

    def __init__(self, model: Model, settings: Settings, conversation: str | None) -> None:
        self.model = model
        self.settings = settings
        labels = self.labels = _labels_of(model)
        self.name = f"{names.CHAT} {labels[names.REQUEST_MODEL]}"
        first = self.first = {**labels, names.REQUEST_STREAM: True}
        if conversation is not None:
            first[names.CONVERSATION] = conversation
        if settings != _NO_SETTINGS:
            first.update(names.parameters(settings))
        self._points: dict[str | None, Points] = {}

    def points(self, answered_by: str | None) -> Points:
        """The dimensions, where the response names the model that answered."""
        points = self._points.get(answered_by)
        if points is None:
            call = dict(self.labels)
            if answered_by:
                call[names.RESPONSE_MODEL] = answered_by
            points = self._points[answered_by] = Points(
                call, {**call, names.TOKEN_TYPE: "input"}, {**call, names.TOKEN_TYPE: "output"}
            )
        return points


class ToolWords:
    """Of a tool of this agent."""

    __slots__ = ("first", "labels", "name", "tool")

    def __init__(self, tool: Tool[..., Any], agent: str) -> None:
        self.tool = tool
        self.name = f"{names.EXECUTE_TOOL} {tool.name}"
        self.labels: dict[str, Any] = {
            names.TOOL_NAME: tool.name,
            names.TOOL_TYPE: "function",
            names.AGENT_NAME: agent,
        }
        self.first = {names.OPERATION: names.EXECUTE_TOOL, **self.labels}
        if tool.description:
            self.first[names.TOOL_DESCRIPTION] = tool.description


def usage_of(usage: Usage | None) -> dict[str, Any]:
    """The tokens, as attributes; kinds of which there were none are left out."""
    if usage is None:
        return {}
    found = {names.INPUT_TOKENS: usage.input_tokens, names.OUTPUT_TOKENS: usage.output_tokens}
    if usage.cache_read_tokens:
        found[names.CACHE_READ] = usage.cache_read_tokens
    if usage.cache_write_tokens:
        found[names.CACHE_WRITE] = usage.cache_write_tokens
    if usage.reasoning_tokens:
        found[names.REASONING_TOKENS] = usage.reasoning_tokens
    return found


def hook_labels(hook: str, point: str, outcome: str) -> Mapping[str, str]:
    """The attributes of a hook's event and metric."""
    return {names.HOOK_NAME: hook, names.HOOK_POINT: point, names.HOOK_OUTCOME: outcome}


def text_of(exc: BaseException) -> str:
    """The exception's text; one whose text cannot be had has none."""
    try:
        return str(exc)
    except Exception:
        return ""


def _labels_of(model: Model) -> dict[str, Any]:
    labels: dict[str, Any] = {
        names.OPERATION: names.CHAT,
        names.PROVIDER: str(getattr(model, "provider", None) or names.UNKNOWN),
        names.REQUEST_MODEL: model_name(model),
    }
    address = getattr(model, "server_address", None)
    if address is not None:
        labels[names.SERVER_ADDRESS] = str(address)
        port = getattr(model, "server_port", None)
        if port is not None:
            labels[names.SERVER_PORT] = int(port)
    return labels
