"""Tools that a provider runs itself: search, code, files, images, MCP servers.

Add provider tools to an agent's tools. A provider receives only the tools that it supports. The use
of a provider tool is not a tool call of the chat: `preToolCall` does not fire. To restrict provider
tools, remove them by name at `preRequest`, or use `allow_tools`. The provider's record of each use
is sent back to the provider with the next request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hookline.models import ProviderTool
from hookline.points import as_tuple

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
    """Define a tool by an entry for each provider: `provider_tool("maps", google={…})`."""
    return ProviderTool(name, entries)


def web_search(
    *, max_uses: int | None = None, allowed_domains: Sequence[str] = (), name: str = "web_search"
) -> ProviderTool:
    """Search the web (OpenAI, Anthropic, Gemini). Only Anthropic supports `max_uses`."""
    names = as_tuple("allowed_domains", allowed_domains)
    domains = {"allowed_domains": list(names)} if names else {}
    uses = {} if max_uses is None else {"max_uses": max_uses}
    entries: dict[str, dict[str, Any]] = {
        "openai": {"type": "web_search", **({"filters": domains} if domains else {})},
        "anthropic": {"type": "web_search_20260318", "name": "web_search", **uses, **domains},
    }
    if not domains:  # Gemini cannot restrict the domains, so it does not get the tool
        entries["google"] = {"google_search": {}}
    return ProviderTool(name, entries)


def web_fetch(*, name: str = "web_fetch") -> ProviderTool:
    """Read web pages that the conversation mentions (Anthropic, Gemini)."""
    return ProviderTool(
        name,
        {
            "anthropic": {"type": "web_fetch_20260318", "name": "web_fetch"},
            "google": {"url_context": {}},
        },
    )


def code_execution(*, name: str = "code_execution") -> ProviderTool:
    """Run code in a container of the provider (OpenAI, Anthropic, Gemini)."""
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
    """Search uploaded files (OpenAI's `vector_stores`, Gemini's `stores`)."""
    entries: dict[str, dict[str, Any]] = {}
    openai, google = as_tuple("vector_stores", vector_stores), as_tuple("stores", stores)
    if openai:
        entries["openai"] = {"type": "file_search", "vector_store_ids": list(openai)}
    if google:
        entries["google"] = {"file_search": {"file_search_store_names": list(google)}}
    return ProviderTool(name, entries)


def image_generation(*, name: str = "image_generation", **options: Any) -> ProviderTool:
    """Generate images (OpenAI). `options` are options of the API, such as size and quality."""
    return ProviderTool(name, {"openai": {"type": "image_generation", **options}})


def remote_mcp(
    label: str,
    url: str,
    *,
    authorization: str | None = None,
    allowed_tools: Sequence[str] | None = None,
    name: str | None = None,
) -> ProviderTool:
    """Let OpenAI call an MCP server without approval; `allowed_tools` restricts the tools."""
    entry: dict[str, Any] = {"type": "mcp", "server_label": label, "server_url": url}
    entry["require_approval"] = "never"
    if authorization is not None:
        entry["authorization"] = authorization
    if allowed_tools is not None:
        entry["allowed_tools"] = list(as_tuple("allowed_tools", allowed_tools))
    return ProviderTool(name or label, {"openai": entry})
