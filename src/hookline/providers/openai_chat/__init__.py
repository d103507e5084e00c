"""Chat Completions through the SDK `openai` (extra `openai`), for OpenAI and compatible servers.

Ollama, vLLM, OpenRouter, Azure and others need a preset (`hookline.providers.presets`), a
`base_url`, or your own client.
"""

from hookline.providers.openai_chat._model import OpenAIChatModel, OpenAIChatSettings

__all__ = ["OpenAIChatModel", "OpenAIChatSettings"]
