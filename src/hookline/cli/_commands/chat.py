"""`hookline chat`: a message or a conversation, in one event loop."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Final, TextIO

from hookline.cli._commands.chat_session import Session
from hookline.cli._commands.chat_setup import ChatOptions, log_to, open_talk
from hookline.cli._options import Target
from hookline.cli._target import deps_at, locate
from hookline.cli._terminal.screen import Screen, is_terminal
from hookline.errors import UsageError

DEFAULTS: Final = ChatOptions()


def chat(agent: Target | None = None, /, *, options: ChatOptions = DEFAULTS) -> int:
    """Talk to an agent in this terminal."""
    if agent is None and options.model is None:
        raise UsageError(
            "name an agent, as in `hookline chat app:agent` (the variable `agent` of app.py in "
            "this folder), or a model, as in `hookline chat --model openai:gpt-5-mini`"
        )
    signal.signal(signal.SIGTERM, _on_sigterm)
    screen = Screen()
    log_to(screen, debug=options.debug)
    text = options.message
    if text is None and not is_terminal(sys.stdin):
        text = _all_of(sys.stdin)
    if text is None and options.output == "json":
        raise UsageError("--output json needs a message: add -m '…', or pipe it in")
    if text is not None and not text.strip():
        raise UsageError("the message is empty: pass -m '…', or pipe a text in")
    located = None if agent is None else locate(agent)
    make_deps = deps_at(options.deps)
    with asyncio.Runner() as runner:
        opening = open_talk(options, located)
        talk = runner.run(opening.__aenter__())
        try:
            session = Session(agent, options, talk, make_deps, screen, runner)
            return session.converse() if text is None else session.once(text)
        finally:
            screen.still()
            screen.echo()
            runner.run(opening.__aexit__(None, None, None))


def _all_of(stream: TextIO | None) -> str:
    return "" if stream is None else stream.buffer.read().decode(errors="replace").rstrip("\n")


def _on_sigterm(*_: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)  # unwinds, so that the spinner restores the cursor
