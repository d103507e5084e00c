"""Services that offer another provider's format at their own address: one row for each service.

`Agent("groq:llama-…")` creates a model from the row of the service. `preset("groq", "llama-…",
settings=…)` also accepts further options. If a server has no row, use `base_url=`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from hookline import Model
from hookline.errors import UsageError
from hookline.providers._adapter.clients import (
    IDLE_TIMEOUT,
    from_environment,
    imported,
    no_key,
)
from hookline.providers._adapter.connection import Connection, Service
from hookline.providers._adapter.http_limits import hooks
from hookline.providers._adapter.ids import NINE
from hookline.providers.anthropic import AnthropicModel
from hookline.providers.anthropic._model import SERVICE as ANTHROPIC
from hookline.providers.google._model import SERVICE as GOOGLE
from hookline.providers.openai._model import SERVICE as OPENAI
from hookline.providers.openai_chat import OpenAIChatModel
from hookline.providers.openai_chat._model import SERVICE
from hookline.providers.openai_chat._request import Dialect

__all__ = ["OWN", "PRESETS", "Preset", "preset"]


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """A service that offers a known API format."""

    title: str
    """The name of the service."""
    speaks: str = "Chat Completions"
    """The format that the service uses."""
    extra: str = "openai"
    """The extra to install."""
    url: str | None = None
    """The address of the service, if it is fixed."""
    address: str | None = None
    """The environment variable for the address."""
    keys: tuple[str, ...] = ()
    """The environment variables for the key; the first one that is set is used."""
    keyless: bool = False
    """Whether the service can be used without a key."""
    schemas: bool = True
    """Whether the service has a mode for JSON schemas."""
    quirks: str = ""
    """The known differences from the format, as text."""


def _own(title: str, speaks: str, service: Service) -> Preset:
    return Preset(
        title=title,
        speaks=speaks,
        extra=service.extra,
        url=service.url,
        address=service.address or None,
        keys=service.keys,
    )


OWN: Final[dict[str, Preset]] = {
    "openai": _own("OpenAI", "OpenAI Responses", OPENAI),
    "openai-chat": _own("OpenAI, or any server with base_url=", "Chat Completions", OPENAI),
    "anthropic": _own("Anthropic", "Anthropic Messages", ANTHROPIC),
    "google": _own("Google", "Google Gemini", GOOGLE),
}
"""The providers with their own formats, by the prefix of a model's name."""
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
        quirks="ids of nine letters and digits; random_seed; tool_choice any; usage always sent",
    ),
    "deepseek": Preset(
        title="DeepSeek",
        url="https://api.deepseek.com/v1",
        keys=("DEEPSEEK_API_KEY",),
        schemas=False,
        quirks="no mode for JSON schemas",
    ),
    "together": Preset(
        title="Together", url="https://api.together.xyz/v1", keys=("TOGETHER_API_KEY",)
    ),
    "azure": Preset(
        title="Azure OpenAI",
        address="AZURE_OPENAI_ENDPOINT",
        keys=("AZURE_OPENAI_API_KEY",),
        quirks="the SDK's Azure client if OPENAI_API_VERSION is set; max_completion_tokens",
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
"""The services that use another provider's format, by the prefix of a model's name."""
_DIALECTS: Final = {
    "groq": Dialect("groq", limit="max_completion_tokens", video=False),
    "azure": Dialect("azure", limit="max_completion_tokens", video=False),
    "deepseek": Dialect("deepseek", video=False),
    "ollama": Dialect("ollama", video=False),
    "mistral": Dialect(
        "mistral", usage=False, seed="random_seed", required="any", ids=NINE, video=False
    ),
}


def preset(prefix: str, name: str, **options: Any) -> Model:
    """Create a model of a service. `options` go to `OpenAIChatModel` or `AnthropicModel`.

    Raises UsageError if the service is unknown, or its SDK is not installed.
    """
    row = PRESETS.get(prefix)
    if row is None:
        prefixes = ", ".join(PRESETS)
        raise UsageError(f"there is no preset {prefix!r}; use one of: {prefixes}, or base_url=")
    if prefix == "bedrock":
        if options.get("client") is None:
            key, url = options.pop("api_key", None), options.pop("base_url", None)
            options["client"] = lambda: _bedrock(key, url)
        return AnthropicModel(name, **options)
    if options.get("client") is None:
        options.pop("client", None)
        of_azure = prefix == "azure" and not options.get("base_url")
        options["connection"] = Connection(
            replace(
                SERVICE,
                keys=row.keys,
                keyless=row.keyless,
                make=_azure if of_azure else SERVICE.make,
            ),
            api_key=options.pop("api_key", None),
            base_url=options.pop("base_url", None)
            or from_environment(row.address or "")
            or row.url,
            provider=options.get("provider", prefix),
            idle_timeout=options.pop("idle_timeout", IDLE_TIMEOUT),
        )
    own: dict[str, Any] = {
        "provider": prefix,
        "dialect": _DIALECTS.get(prefix, Dialect(prefix)),
        "takes_schema": row.schemas,
    }
    return OpenAIChatModel(name, **{**own, **options})


def _azure(connection: Connection[Any]) -> Any:
    """Return Azure's client, for the dated API if its version is set, else for the undated API."""
    endpoint, key = _set("azure", "AZURE_OPENAI_ENDPOINT"), PRESETS["azure"].keys[0]
    key_value = connection.api_key or from_environment(key)
    if key_value is None and from_environment("AZURE_OPENAI_AD_TOKEN") is None:
        raise no_key("azure", key, "AZURE_OPENAI_AD_TOKEN")
    sdk = imported("openai")
    http = sdk.DefaultAsyncHttpxClient(event_hooks=hooks())
    if key_value is None or from_environment("OPENAI_API_VERSION") is not None:
        return sdk.AsyncAzureOpenAI(api_key=key_value, http_client=http)
    url = f"{endpoint.rstrip('/')}/openai/v1/"
    return sdk.AsyncOpenAI(api_key=key_value, base_url=url, http_client=http)


def _bedrock(api_key: str | None, base_url: str | None) -> Any:
    """Return Anthropic's client for Bedrock, which also answers with server-sent events."""
    if base_url is None:
        _set("bedrock", "AWS_REGION", "AWS_DEFAULT_REGION")
    sdk = imported("anthropic")
    http = sdk.DefaultAsyncHttpxClient(event_hooks=hooks())
    return sdk.AsyncAnthropicBedrockMantle(api_key=api_key, base_url=base_url, http_client=http)


def _set(prefix: str, *names: str) -> str:
    """Return the value of the first of these environment variables that is set."""
    value = from_environment(*names)
    if value is None:
        raise UsageError(f"{prefix}: the address is missing; set {names[0]}, or pass client=")
    return value
