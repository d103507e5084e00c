"""Ready-made hooks: budgets, guards, short histories, redaction, caching, retries and logs.

    agent = Agent(model, tools=tools, hooks=[budget(steps=10), deny_commands("rm -rf"), log()])

Each function returns definitions for `Agent(hooks=)`, `agent.chat(hooks=)` or `agent.use()`. All of
them use only the public hooks.
"""

from hookline.hooks._context.summarize import summarize
from hookline.hooks._context.watch_prefix import RequestPrefix, watch_prefix
from hookline.hooks._context.window import rough_tokens, truncate, window
from hookline.hooks._guards.allow_tools import allow_tools
from hookline.hooks._guards.approve import approve
from hookline.hooks._guards.deny_commands import deny_commands
from hookline.hooks._guards.pin_tools import pin_tools, tool_digest
from hookline.hooks._guards.rate_limit import rate_limit
from hookline.hooks._guards.review import Review, read_reviews, review
from hookline.hooks._guards.shell_commands import runs_command
from hookline.hooks._logs.audit import audit
from hookline.hooks._logs.log import log
from hookline.hooks._requests.cache import CacheStore, MemoryCache, cache, request_key
from hookline.hooks._requests.retry import fallback, retry
from hookline.hooks._spending.accounts import Ledger
from hookline.hooks._spending.budget import budget
from hookline.hooks._text.by_sentence import by_sentence
from hookline.hooks._text.guardrail import guardrail
from hookline.hooks._text.redact import redact

__all__ = [
    "CacheStore",
    "Ledger",
    "MemoryCache",
    "RequestPrefix",
    "Review",
    "allow_tools",
    "approve",
    "audit",
    "budget",
    "by_sentence",
    "cache",
    "deny_commands",
    "fallback",
    "guardrail",
    "log",
    "pin_tools",
    "rate_limit",
    "read_reviews",
    "redact",
    "request_key",
    "retry",
    "review",
    "rough_tokens",
    "runs_command",
    "summarize",
    "tool_digest",
    "truncate",
    "watch_prefix",
    "window",
]
