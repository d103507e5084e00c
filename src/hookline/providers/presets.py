"""Services that speak a provider's format under an address of their own: one row each.

`Agent("groq:llama-…")` makes the model of a row; `preset("groq", "llama-…", settings=…)` does so
where it needs more than a name. A server that has no row is reached by `base_url=`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from hookline import Model
from hookline.errors import UsageError
from hookline.providers._clients import from_environment, imported, no_key
from hookline.providers._ids import NINE
from hookline.providers._openai_chat_request import Dialect
from hookline.providers.anthropic import AnthropicModel
from hookline.providers.openai import Connection
from hookline.providers.openai_chat import OpenAIChatModel

__all__ = ["OWN", "PRESETS", "Preset", "preset"]


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """One service."""

    title: str
    """Its name."""
    speaks: str = "Chat Completions"
    """Whose format it speaks."""
    extra: str = "openai"
    """The extra to install."""
    url: str | None = None
    """Its address, if it is always the same."""
    address: str | None = None
    """The variable that has its address."""
    keys: tuple[str, ...] = ()
    """The variables that may have the key."""
    keyless: bool = False
    """Whether it can be asked without a key."""
    quirks: str = ""
    """What it has differently."""


OWN: Final[dict[str, Preset]] = {
    "openai": Preset(
        title="OpenAI",
        speaks="OpenAI Responses",
        url="https://api.openai.com/v1",
        address="OPENAI_BASE_URL",
        keys=("OPENAI_API_KEY",),
    ),
    "openai-chat": Preset(
        title="OpenAI, or any server by base_url=",
        url="https://api.openai.com/v1",
        address="OPENAI_BASE_URL",
        keys=("OPENAI_API_KEY",),
    ),
    "anthropic": Preset(
        title="Anthropic",
        speaks="Anthropic Messages",
        extra="anthropic",
        url="https://api.anthropic.com",
        address="ANTHROPIC_BASE_URL",
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    ),
    "google": Preset(
        title="Google",
        speaks="Google Gemini",
        extra="google",
        url="https://generativelanguage.googleapis.com",
        keys=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    ),
}
"""The providers themselves, by the prefix of a model's name."""
PRESETS: Final[dict[str, Preset]] = {
    "ollama": Preset(
        title="Ollama",
        url="http://localhost:11434/v1",
        address="OLLAMA_BASE_URL",
        keys=("OLLAMA_API_KEY",),
        keyless=True,
    ),
    "openrouter": Preset(
        title="OpenRouter", url="https://openrouter.ai/api/v1", keys=("OPENROUTER_API_KEY",)
    ),
    "groq": Preset(
        title="Groq",
        url="https://api.groq.com/openai/v1",
        keys=("GROQ_API_KEY",),
        quirks="max_completion_tokens",
    ),
    "mistral": Preset(
        title="Mistral",
        url="https://api.mistral.ai/v1",
        keys=("MISTRAL_API_KEY",),
        quirks="ids of nine letters and digits; random_seed; tool_choice any; usage unasked",
    ),
    "deepseek": Preset(
        title="DeepSeek", url="https://api.deepseek.com/v1", keys=("DEEPSEEK_API_KEY",)
    ),
    "together": Preset(
        title="Together", url="https://api.together.xyz/v1", keys=("TOGETHER_API_KEY",)
    ),
    "azure": Preset(
        title="Azure OpenAI",
        address="AZURE_OPENAI_ENDPOINT",
        keys=("AZURE_OPENAI_API_KEY",),
        quirks="the SDK's Azure client where OPENAI_API_VERSION is set; max_completion_tokens",
    ),
    "bedrock": Preset(
        title="Amazon Bedrock",
        speaks="Anthropic Messages",
        extra="anthropic",
        address="AWS_REGION",
        keys=("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"),
        quirks="the SDK's Bedrock client",
    ),
}
"""Services that speak the format of one of them, by the prefix of a model's name."""
_DIALECTS: Final[dict[str, Callable[[], Dialect]]] = {
    "groq": lambda: Dialect("groq", limit="max_completion_tokens"),
    "azure": lambda: Dialect("azure", limit="max_completion_tokens"),
    "mistral": lambda: Dialect(
        "mistral", usage=False, seed="random_seed", required="any", ids=NINE
    ),
}


def preset(prefix: str, name: str, **options: Any) -> Model:
    """A model of that service; `options` are those of `OpenAIChatModel`, or of `AnthropicModel`.

    Raises UsageError where there is no such service, or its SDK is not installed.
    """
    row = PRESETS.get(prefix)
    if row is None:
        known = ", ".join(PRESETS)
        raise UsageError(f"there is no preset {prefix!r}; use one of: {known}, or base_url=")
    given: dict[str, Any]
    if prefix == "bedrock":
        given = {"client": _bedrock, **options}
        return AnthropicModel(name, **given)
    make = _DIALECTS.get(prefix)
    dialect = Dialect(prefix) if make is None else make()
    if "client" not in options:
        of_azure = prefix == "azure" and "base_url" not in options
        options["connection"] = Connection(
            api_key=options.pop("api_key", None),
            base_url=options.pop("base_url", None) or _address(row),
            keys=row.keys,
            keyless=row.keyless,
            make=_azure if of_azure else None,
        )
    given = {"provider": prefix, "dialect": dialect, **options}
    return OpenAIChatModel(name, **given)


def _address(row: Preset) -> str | None:
    given = from_environment(row.address) if row.address is not None else None
    return given or row.url


def _azure() -> Any:
    """Azure's client: of the dated API where its version is set, else of the one without dates."""
    endpoint, key = _set("azure", "AZURE_OPENAI_ENDPOINT"), PRESETS["azure"].keys[0]
    found = from_environment(key)
    if found is None and from_environment("AZURE_OPENAI_AD_TOKEN") is None:
        raise no_key("azure", key, "AZURE_OPENAI_AD_TOKEN")
    sdk = imported("openai")
    if found is None or from_environment("OPENAI_API_VERSION") is not None:
        return sdk.AsyncAzureOpenAI()
    return sdk.AsyncOpenAI(api_key=found, base_url=f"{endpoint.rstrip('/')}/openai/v1/")


def _bedrock() -> Any:
    """Anthropic's client for Bedrock, whose answers are server-sent events like its own."""
    _set("bedrock", "AWS_REGION", "AWS_DEFAULT_REGION")
    return imported("anthropic").AsyncAnthropicBedrockMantle()


def _set(prefix: str, *names: str) -> str:
    """What one of these variables holds."""
    found = from_environment(*names)
    if found is None:
        raise UsageError(f"{prefix}: there is no address; set {names[0]}, or pass client=")
    return found
