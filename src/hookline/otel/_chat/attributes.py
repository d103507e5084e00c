"""The attributes of models, tools and hooks, for spans and metrics.

The attributes of a model or tool are the same at each step of a chat. They are built once per chat,
and a span's own attributes are added to a copy. They are never modified: an SDK may keep them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hookline import Model, Settings, Tool, Usage
from hookline.models import model_name
from hookline.otel._conventions import names
from hookline.otel._emit.content import Content
from hookline.otel._emit.metrics import Points

_NO_SETTINGS: Final = Settings()


class ModelWords:
    """The attributes of a model with its settings."""

    __slots__ = ("_points", "first", "labels", "model", "name", "settings")

    def __init__(
        self, model: Model, settings: Settings, trace: Mapping[str, Any], content: Content
    ) -> None:
        self.model = model
        self.settings = settings
        labels = self.labels = _labels_of(model)
        self.name = f"{names.CHAT} {labels[names.REQUEST_MODEL]}"
        # The application's own come first: an SDK with too many attributes drops the first ones.
        first = self.first = {**trace, **labels, names.REQUEST_STREAM: True}
        if settings != _NO_SETTINGS:
            first.update(parameters(settings, content))
        self._points: dict[str | None, Points] = {}

    def points(self, answered_by: str | None) -> Points:
        """Return the dimensions for the model named in the response."""
        points = self._points.get(answered_by)
        if points is None:
            call = dict(self.labels)
            if answered_by:
                call[names.RESPONSE_MODEL] = names.whole(answered_by)
            points = self._points[answered_by] = Points.of(call)
        return points


class ToolWords:
    """The attributes of a tool of this agent."""

    __slots__ = ("first", "labels", "name", "tool")

    def __init__(
        self, tool: Tool[..., Any], agent: str, trace: Mapping[str, Any], content: Content
    ) -> None:
        self.tool = tool
        self.name = f"{names.EXECUTE_TOOL} {tool.name}"
        self.labels: dict[str, Any] = {
            names.TOOL_NAME: tool.name,
            names.TOOL_TYPE: "function",
            names.AGENT_NAME: agent,
        }
        self.first = {**trace, names.OPERATION: names.EXECUTE_TOOL, **self.labels}
        if tool.description:
            self.first[names.TOOL_DESCRIPTION] = content.word(tool.description)


def parameters(settings: Settings, content: Content) -> dict[str, Any]:
    """Return the settings of a request as attributes."""
    numbers = {
        "gen_ai.request.temperature": settings.temperature,
        "gen_ai.request.top_p": settings.top_p,
        "gen_ai.request.max_tokens": settings.max_tokens,
        "gen_ai.request.seed": settings.seed,
    }
    attributes: dict[str, Any] = {
        name: value for name, value in numbers.items() if value is not None
    }
    if settings.stop:
        attributes[names.STOP_SEQUENCES] = tuple([content.word(text) for text in settings.stop])
    return attributes


def usage_of(usage: Usage | None, cache_write: str | None) -> dict[str, Any]:
    """Return the tokens as attributes; types without tokens are left out.

    Without a name for tokens written to a cache, cached tokens are left out, too.
    """
    if usage is None:
        return {}
    attributes = {names.INPUT_TOKENS: usage.input_tokens, names.OUTPUT_TOKENS: usage.output_tokens}
    if usage.cache_read_tokens and cache_write is not None:
        attributes[names.CACHE_READ] = usage.cache_read_tokens
    if usage.cache_write_tokens and cache_write is not None:
        attributes[cache_write] = usage.cache_write_tokens
    if usage.reasoning_tokens:
        attributes[names.REASONING_TOKENS] = usage.reasoning_tokens
    return attributes


def hook_labels(hook: str, point: str, outcome: str) -> Mapping[str, str]:
    """Return the attributes of a hook's event and metric."""
    return {
        names.HOOK_NAME: names.whole(hook),
        names.HOOK_POINT: point,
        names.HOOK_OUTCOME: outcome,
    }


def _labels_of(model: Model) -> dict[str, Any]:
    labels: dict[str, Any] = {
        names.OPERATION: names.CHAT,
        names.PROVIDER: names.whole(str(getattr(model, "provider", None) or names.UNKNOWN)),
        names.REQUEST_MODEL: names.whole(model_name(model)),
    }
    address = getattr(model, "server_address", None)
    if address is not None:
        labels[names.SERVER_ADDRESS] = str(address)
        port = getattr(model, "server_port", None)
        if port is not None:
            labels[names.SERVER_PORT] = int(port)
    return labels
