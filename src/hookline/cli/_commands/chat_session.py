"""`hookline chat`: the turns of a conversation, each in an event loop, with prompts between them.

A turn may end normally, by an error, or by Ctrl-C; none of these ends the program. A call that asks
for approval also ends the turn: the conversation keeps the question (in its store, if it has one),
and the answer begins the next turn. So a program that is killed at a question loses nothing.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from shlex import join
from typing import Literal

from hookline import ApprovalRequest, Approve, ChatStream, Deny, __version__
from hookline.cli._commands.chat_setup import ChatOptions, Talk, watch
from hookline.cli._commands.conversations import entitle
from hookline.cli._commands.workspace import COMMANDS, greeting, is_command
from hookline.cli._target import MakeDeps
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.error_texts import (
    FAILED,
    INTERRUPTED,
    OK,
    USAGE,
    WAITS,
    error_line,
    trace,
)
from hookline.cli._terminal.output import JsonView, PlainView, TerminalView, View
from hookline.cli._terminal.prompts import LeftError, Prompts
from hookline.cli._terminal.screen import Screen
from hookline.errors import ApprovalError, ConversationBusyError, StreamStateError, UsageError
from hookline.events import SentMessage

Ending = Literal["done", "aborted", "failed", "useless"]


class Session:
    """A conversation with an agent, from the first turn to the last."""

    def __init__(
        self,
        target: str | None,
        options: ChatOptions,
        talk: Talk,
        make_deps: MakeDeps,
        screen: Screen,
        runner: asyncio.Runner,
    ) -> None:
        self._target = target
        self._options = options
        self._talk = talk
        self._make_deps = make_deps
        self._screen = screen
        self._runner = runner
        self._start_time = time.time()
        self._converses = False  # the terminal is ours until the user leaves
        self._prompts = Prompts(screen)
        self._asks = self._prompts.can_ask and options.output == "text"
        if options.output == "json":
            self._view: View = JsonView()
        else:
            self._view = TerminalView(screen) if screen.live else PlainView(screen)
        if options.hooks:
            watch(talk.agent, self._view, decisions=options.hooks == "decisions")

    # ── one message ─────────────────────────────────────────────────────────────────────────

    def once(self, text: str) -> int:
        """Send one message, and ask the questions before and after its answer."""
        if self._waiting() and not self._asks:
            return self._waits()
        try:
            ending = self._settle()
            if ending == "done":
                ending = self._say(text)
            while ending == "done" and self._waiting():
                if not self._asks:
                    return self._waits()
                ending = self._settle()
        except LeftError:
            self._postponed()
            return WAITS
        except KeyboardInterrupt:
            self._postponed()
            return INTERRUPTED
        return {"done": OK, "aborted": INTERRUPTED, "failed": FAILED, "useless": USAGE}[ending]

    def _waits(self) -> int:
        talk, options = self._talk, self._options
        names = ", ".join(request.call.name for request in talk.conversation.pending)
        again = ["hookline", "chat", *([self._target] if self._target else [])]
        again += ["--model", options.model] if options.model else []
        again += ["--deps", options.deps] if options.deps else []
        again += [word for path in options.mcp for word in ("--mcp", path)]
        again += ["--conversation", talk.conversation.id]
        again += ["--store", without_password(options.store)] if options.store else []
        notice = f"waiting for an approval ({names}); to answer, run in a terminal: {join(again)}"
        self._screen.fault(strict(f"hookline: {notice}"))
        return WAITS

    # ── many messages ───────────────────────────────────────────────────────────────────────

    def converse(self) -> int:
        """Read and answer messages until the user leaves."""
        self._greet()
        self._converses = True
        while True:
            try:
                if self._settle() == "useless":
                    return USAGE
            except LeftError:
                self._postponed()
                return OK
            except KeyboardInterrupt:
                self._postponed()
            try:
                self._screen.say("")
                text = self._prompts.message()
            except LeftError:
                return OK
            except KeyboardInterrupt:
                return INTERRUPTED
            if self._talk.workspace is not None and is_command(text):
                self._command(text.strip())
            elif text and self._say(text) == "useless":
                return USAGE

    def _command(self, name: str) -> None:
        """Show or undo the changes of a workspace."""
        assert self._talk.workspace is not None
        if name not in COMMANDS:
            self._screen.say(f"There is no command {name}; /diff shows and /undo undoes changes.")
            return
        for text, style in self._runner.run(COMMANDS[name](self._talk.workspace, self._start_time)):
            self._screen.say(strict(text), style)

    def _greet(self) -> None:
        say, talk = self._screen.say, self._talk
        target = self._target or self._options.model
        title = f"{talk.agent.name} ({target})" if talk.agent.name != target else target
        say(strict(f"hookline {__version__} · {title}"))
        if talk.is_stored:
            count = len(talk.conversation.messages)
            many = "1 message" if count == 1 else f"{count} messages"
            say(strict(f"conversation {talk.conversation.id}: {many}"))
        if talk.workspace is not None:
            for text, style in self._runner.run(greeting(talk.workspace)):
                say(strict(text), style)
        say("Ctrl-C stops an answer, Enter sends a line into it, Ctrl-D leaves.")

    # ── questions ───────────────────────────────────────────────────────────────────────────

    def _waiting(self) -> tuple[ApprovalRequest, ...]:
        """Return the questions that can still be answered."""
        now = time.time()
        pending = self._talk.conversation.pending
        return tuple(
            request for request in pending if request.expires is None or request.expires > now
        )

    def _settle(self) -> Ending:
        """Ask pending questions, and resume; raises LeftError and KeyboardInterrupt."""
        ending: Ending = "done"
        talk = self._talk
        while ending == "done" and talk.conversation.pending:
            waiting = self._waiting()
            if not waiting:
                self._screen.say("A question has expired: its tool call does not run.")
                return ending
            answers: dict[str, Approve | Deny] = {}
            for number, request in enumerate(waiting, 1):
                answers[request.id] = self._prompts.decision(request, number, len(waiting))
            ending = self._turn(partial(talk.agent.resume_stream, talk.conversation, answers))
        return ending

    def _postponed(self) -> None:
        if self._talk.conversation.pending:
            later = " You can answer later." if self._talk.is_stored else ""
            self._screen.say(f"Not answered: no waiting call has run.{later}", "mark")

    # ── a turn ──────────────────────────────────────────────────────────────────────────────

    def _say(self, text: str) -> Ending:
        talk = self._talk
        # Without a conversation, calls that need an approval are denied: nobody can be asked.
        conversation = talk.conversation if self._asks or talk.is_stored else None
        ending = self._turn(partial(talk.agent.chat_stream, text, conversation=conversation))
        if talk.is_stored:
            self._runner.run(entitle(talk.conversation))
        return ending

    def _turn(self, begin: Callable[..., ChatStream]) -> Ending:
        """Run one chat to its end, with deps of its own."""
        try:
            stream = begin(deps=self._runner.run(self._make_deps()))
            self._runner.run(self._play(stream))
            return "done" if _has_response(stream) else "aborted"
        except KeyboardInterrupt:  # before the chat has begun, while its deps are made
            self._screen.say("■ stopped: interrupted", "mark")
            return "aborted"
        except Exception as exc:
            self._screen.fault(error_line(exc, "the chat"))
            if self._options.debug:
                print(trace(exc), file=sys.stderr)
            passing = (ConversationBusyError, ApprovalError)
            useless = isinstance(exc, UsageError) and not isinstance(exc, passing)
            return "useless" if useless else "failed"

    async def _play(self, stream: ChatStream) -> None:
        loop = asyncio.get_running_loop()
        aborting = False

        def on_interrupt(*_: object) -> None:
            nonlocal aborting
            if aborting:  # the chat does not end, or blocks the loop
                self._screen.give_back()
                os._exit(INTERRUPTED)
            aborting = True
            loop.call_soon_threadsafe(stream.abort, "interrupted")

        messages: list[SentMessage] = []

        def on_line(text: str) -> None:
            if self._talk.workspace is not None and is_command(text):
                self._screen.say("This command works between two answers.")
            else:
                messages.append(stream.send(text))

        before = signal.signal(signal.SIGINT, on_interrupt)
        with self._prompts.lines(on_line) if self._converses else nullcontext():
            try:
                async with stream:
                    async for event in stream:
                        self._view.event(event)
            finally:
                signal.signal(signal.SIGINT, before)
                self._view.end()
                self._tell_returned(messages)

    def _tell_returned(self, messages: Sequence[SentMessage]) -> None:
        """Show the messages that the answer has not taken."""
        for message in messages:
            if message.status == "returned":
                words = f"not delivered, {message.reason}: {message.message.text}"
                self._screen.say(strict(words), "mark")


def without_password(url: str) -> str:
    """Return the URL without its password."""
    return re.sub(r"(://[^/@:]*):[^/@]*@", r"\1:…@", url)


def _has_response(stream: ChatStream) -> bool:
    try:
        _ = stream.response
    except StreamStateError:
        return False
    return True
