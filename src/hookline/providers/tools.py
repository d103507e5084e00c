"""Tools that a provider runs itself: search, code, files, pictures, servers of tools.

They stand among an agent's tools, by a name that hooks can take out of a request, and a provider is
told of those that it has. They are not calls: no hook at `preToolCall` sees them, so who must ask
or refuse removes them at `preRequest` or with `allow_tools`. What they did goes back to the
provider whole with the next request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hookline.models import ProviderTool

__all__ = [
    "code_execution",
    "file_search",
    "image_generation",
    "provider_tool",
    "remote_mcp",
    "web_fetch",
    "web_search",
]


def provider_tool(name: str, **entries: dict[str, Any]) -> ProviderTool:
    """Any tool, by what each provider is to be told: `provider_tool("maps", google={…})`."""
    return ProviderTool(name, entries)


def web_search(
    *, max_uses: int | None = None, allowed_domains: Sequence[str] = (), name: str = "web_search"
) -> ProviderTool:
    """Search the web: OpenAI, Anthropic, Gemini. Only Anthropic bounds how often it is used."""
    domains = {"allowed_domains": list(allowed_domains)} if allowed_domains else {}
    uses = {} if max_uses is None else {"max_uses": max_uses}
    entries: dict[str, dict[str, Any]] = {
        "openai": {"type": "web_search", **({"filters": domains} if domains else {})},
        "anthropic": {"type": "web_search_20260318", "name": "web_search", **uses, **domains},
    }
    if not domains:  # Gemini cannot be kept to domains, so it is not asked to search
        entries["google"] = {"google_search": {}}
    return ProviderTool(name, entries)


def web_fetch(*, name: str = "web_fetch") -> ProviderTool:
    """Read pages that the conversation names: Anthropic, Gemini."""
    return ProviderTool(
        name,
        {
            "anthropic": {"type": "web_fetch_20260318", "name": "web_fetch"},
            "google": {"url_context": {}},
        },
    )


def code_execution(*, name: str = "code_execution") -> ProviderTool:
    """Run code in a container of the provider: OpenAI, Anthropic, Gemini."""
    return ProviderTool(
        name,
        {
            "openai": {"type": "code_interpreter", "container": {"type": "auto"}},
            "anthropic": {"type": "code_execution_20260521", "name": "code_execution"},
            "google": {"code_execution": {}},
        },
    )


def file_search(
    *, vector_stores: Sequence[str] = (), stores: Sequence[str] = (), name: str = "file_search"
) -> ProviderTool:
    """Search files that were uploaded: OpenAI's `vector_stores`, Gemini's `stores`."""
    entries: dict[str, dict[str, Any]] = {}
    if vector_stores:
        entries["openai"] = {"type": "file_search", "vector_store_ids": list(vector_stores)}
    if stores:
        entries["google"] = {"file_search": {"file_search_store_names": list(stores)}}
    return ProviderTool(name, entries)


def image_generation(*, name: str = "image_generation", **options: Any) -> ProviderTool:
    """Make pictures: OpenAI; `options` are the API's, such as size and quality."""
    return ProviderTool(name, {"openai": {"type": "image_generation", **options}})


def remote_mcp(
    label: str,
    url: str,
    *,
    authorization: str | None = None,
    allowed_tools: Sequence[str] | None = None,
    name: str | None = None,
) -> ProviderTool:
    """An MCP server that OpenAI calls itself, without asking; `allowed_tools` bounds what."""
    entry: dict[str, Any] = {"type": "mcp", "server_label": label, "server_url": url}
    entry["require_approval"] = "never"
    if authorization is not None:
        entry["authorization"] = authorization
    if allowed_tools is not None:
        entry["allowed_tools"] = list(allowed_tools)
    return ProviderTool(name or label, {"openai": entry})
