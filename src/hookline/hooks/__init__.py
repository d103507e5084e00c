"""Ready-made hooks: budgets, guards, short histories, redaction, caching, retries and logs.

    agent = Agent(model, tools=tools, hooks=[budget(steps=10), deny_commands("rm -rf"), log()])

Each function returns definitions for `Agent(hooks=)`, `agent.chat(hooks=)` or `agent.use()`. All of
them use only the public hooks.
"""

from hookline.hooks._allow import allow_tools
from hookline.hooks._answers import CacheStore, MemoryCache
from hookline.hooks._approve import approve
from hookline.hooks._audit import audit
from hookline.hooks._budget import budget
from hookline.hooks._cache import cache, request_key
from hookline.hooks._deny import deny_commands
from hookline.hooks._guardrail import guardrail
from hookline.hooks._logging import log
from hookline.hooks._pins import pin_tools, tool_digest
from hookline.hooks._rate import rate_limit
from hookline.hooks._redact import redact
from hookline.hooks._retry import fallback, retry
from hookline.hooks._spending import Ledger
from hookline.hooks._summarize import summarize
from hookline.hooks._window import rough_tokens, truncate, window

__all__ = [
    "CacheStore",
    "Ledger",
    "MemoryCache",
    "allow_tools",
    "approve",
    "audit",
    "budget",
    "cache",
    "deny_commands",
    "fallback",
    "guardrail",
    "log",
    "pin_tools",
    "rate_limit",
    "redact",
    "request_key",
    "retry",
    "rough_tokens",
    "summarize",
    "tool_digest",
    "truncate",
    "window",
]
