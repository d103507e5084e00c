"""What errors say: the rule that was broken, the value that broke it, and what to do next.

Every text in the source is judged; scripts/dev/error_texts.py finds and lists them. A text says
what to do when a sentence or clause of it begins with a verb that tells one to, or when it names
what there must be. It shows the value when something is put into it as it is raised; the few that
have none to show are listed here, each with the reason.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests._rules import every

import hookline.errors

ROOT = Path(__file__).resolve().parent.parent


def _script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / "dev" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@cache
def texts() -> list[Any]:
    return sorted(_script("error_texts").error_texts())


EACH = every(texts)

VERBS = (
    "add", "allow", "answer", "ask", "await", "begin", "call", "change", "check", "chmod", "choose",
    "chown", "continue", "create", "declare", "define", "delete", "do", "end", "export",
    "fix", "give", "go",
    "install", "keep", "leave", "let", "list", "load", "look", "make", "name", "offer", "open",
    "pass", "percent-encode", "pip", "put", "raise", "read", "register", "remove", "rename",
    "replace", "report", "restore", "return", "run", "save", "see", "send", "set", "start", "stop",
    "subscribe", "take", "tell", "try", "use", "wait", "wrap", "write",
)  # fmt: skip
CLAUSE = re.compile(
    r"(?:^|[;:.–(,] (?:or |and |then |please )?|[a-z] or |\n\s*)(?:" + "|".join(VERBS) + r")\b",
    re.IGNORECASE,
)
REQUIRED = re.compile(r"\bmust\b|\bneeds?\b")

# Texts without a value, and why there is none.
NOTHING_TO_SHOW = {
    "called with nothing, or an option left out": (
        "deny_commands() needs", "fallback() needs", "redact() needs", "window() needs",
        "of_type() needs at least", "coalesce() needs a limit", "resume() needs",
        "cost= needs price=", "pass hooks= or only", "the point needs a field", "relay= needs",
        "record_evaluation() needs",
        "redact(): an empty value", "budget() needs a limit", "count= needs steps=",
    ),
    "the moment is wrong, and not a value": (
        "a stream must be", "a stream has one reader", "a subscription has one reader",
        "the stream has no response", "proceed was called", "a hook at aroundChat returned",
        "the sequence is broken", "this model's client= was used",
        "this process has a tracer provider", "a RedisRelay serves one app",
        "the run behind this stream",
    ),
    "what was raised is the cause of this error": (
        "the model raised CancelledError",
        "a hook or the model raised", "the model's stream ended", "the chat ended without",
    ),
    "it may be a secret": (
        "token= must have", "pass token= or authorize=", "the relay's address must",
    ),
    "a name that is fixed": (
        "hookline.streams needs", "a relay needs redis", "genai_prices() needs", "spans() needs",
    ),
    "options that do not go together, named in the text": (
        "--reload serves from", "--resume needs a store", "--resume chooses the",
        "--resume: the store has no",
    ),
    "the function is named before it": (
        "a function with `yield`", "a wrapper must", "on_error='deny'",
    ),
    "data that is changed in place": ("data of a message, call or result is read-only",),
    "whole turns": ("raw_chunks= is the whole turn",),
    "there is no call": ("run.ask() is for a tool",),
    "a truth value": ("enabled() returned an awaitable",),
    "it is empty": ("label='' of an MCP server",),
    "nothing was typed": (
        "name an agent, as in", "--output json needs a message", "the message is empty",
    ),
}  # fmt: skip
SILENT = tuple(start for starts in NOTHING_TO_SHOW.values() for start in starts)


def says_what_to_do(text: str) -> bool:
    return bool(CLAUSE.search(text) or REQUIRED.search(text))


def shows_the_value(error: str, text: str) -> bool:
    return "⟨" in text or error == "Refused" or text.startswith(SILENT)


@EACH
def test_an_error_says_what_to_do_next(text: Any) -> None:
    assert text.text, "its text is made elsewhere: tell scripts/dev/error_texts.py where"
    assert says_what_to_do(text.text), text


@EACH
def test_an_error_shows_the_value(text: Any) -> None:
    """A `Refused` does not: what a client has sent is not sent back to it."""
    assert shows_the_value(text.error, text.text), text


def test_no_exception_to_the_rule_is_left_over() -> None:
    for start in SILENT:
        assert any(each.text.startswith(start) and "⟨" not in each.text for each in texts()), start


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("Limits(steps=⟨self.steps⟩) must be at least 1", True),
        ("there is no scope ⟨label⟩; use one of: ⟨known⟩", True),
        ("⟨module⟩ is not installed: pip install ⟨extra⟩", True),
        ("something went wrong with ⟨value⟩", False),
        ("tool ⟨tool⟩ is not available in this step", False),
        ("the request of ⟨model⟩ was opened and read by another", False),
    ],
)
def test_the_criterion_tells_good_texts_from_poor_ones(text: str, good: bool) -> None:
    assert says_what_to_do(text) == good


# ── the classes ─────────────────────────────────────────────────────────────────────────────

KINDS = every(hookline.errors.__all__)


@KINDS
def test_an_error_class_tells_what_to_do(name: str) -> None:
    text = getattr(hookline.errors, name).__doc__
    advice = re.search(r"^ *What to do: (.+?)(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    assert advice
    assert len(advice[1].split()) >= 4
