"""The models of providers. Each imports its SDK at its first request.

`hookline.providers.presets` has services that use another provider's format, `.tools` the tools
that a provider runs itself, and `.kit` the building blocks of further adapters.
"""

from hookline.providers.anthropic import AnthropicModel, AnthropicSettings
from hookline.providers.google import GoogleModel, GoogleSettings
from hookline.providers.openai import OpenAIModel, OpenAISettings
from hookline.providers.openai_chat import OpenAIChatModel, OpenAIChatSettings

__all__ = [
    "AnthropicModel",
    "AnthropicSettings",
    "GoogleModel",
    "GoogleSettings",
    "OpenAIChatModel",
    "OpenAIChatSettings",
    "OpenAIModel",
    "OpenAISettings",
]
