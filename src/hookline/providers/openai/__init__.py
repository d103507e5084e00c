"""OpenAI's Responses API, through the SDK `openai` (extra `openai`)."""

from hookline.providers.openai._model import OpenAIModel, OpenAISettings

__all__ = ["OpenAIModel", "OpenAISettings"]
