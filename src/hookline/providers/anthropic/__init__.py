"""Anthropic's Messages API, through the SDK `anthropic` (extra `anthropic`)."""

from hookline.providers.anthropic._model import AnthropicModel, AnthropicSettings

__all__ = ["AnthropicModel", "AnthropicSettings"]
