"""The program: its commands and their help, and its error handling.

The texts of `--help` are in `_help.py`. A command, with its options, is a function in `_commands`,
which is imported when the command runs: no command waits for the imports of another. Cyclopts
parses the command line. Its errors, and the errors of a command, are reported in one line, and the
exit status tells wrong usage from failures.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

from cyclopts import App, CycloptsError, Parameter

from hookline import __version__
from hookline.cli import _help
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.error_texts import FAILED, INTERRUPTED, USAGE, error_line, trace
from hookline.cli._terminal.screen import Screen
from hookline.errors import UsageError

COMMANDS: Final = "hookline.cli._commands"

app = App(
    name="hookline",
    help=_help.ALL,
    help_format="plaintext",
    version=__version__,
    default_parameter=Parameter(negative="", show_default=False),
)
app.command(f"{COMMANDS}.durable:app", name="durable", help=_help.DURABLE)
app.register_install_completion_command()  # pyright: ignore[reportUnknownMemberType]
app.command(f"{COMMANDS}.chat:chat", help=_help.CHAT)
app.command(f"{COMMANDS}.hooks:hooks", help=_help.HOOKS)
app.command(f"{COMMANDS}.check:check", help=_help.CHECK)
app.command(f"{COMMANDS}.replay:replay", help=_help.REPLAY)
app.command(f"{COMMANDS}.conversations:conversations", help=_help.CONVERSATIONS)
app.command(f"{COMMANDS}.init:init", help=_help.INIT)
app.command(f"{COMMANDS}.mcp:app", name="mcp", help=_help.MCP)
app.command(f"{COMMANDS}.models:models", help=_help.MODELS)
app.command(f"{COMMANDS}.workspace:app", name="workspace", help=_help.WORKSPACE)
app.command(f"{COMMANDS}.serve:serve", help=_help.SERVE)
app.command(f"{COMMANDS}.approvals:approvals", help=_help.APPROVALS)
app.command(f"{COMMANDS}.approvals:review", help=_help.REVIEW)


# ── running it ──────────────────────────────────────────────────────────────────────────────


def run(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name; returns the exit status."""
    try:
        status: Any = app(
            _with_values(arguments),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except CycloptsError as exc:
        return _misused(arguments, exc)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `hookline … | head`: the reader has gone
        sys.stdout = None
        return FAILED
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else FAILED
    except Exception as exc:
        Screen().fault(error_line(exc))
        if "--debug" in arguments:
            print(trace(exc), file=sys.stderr)
        return USAGE if isinstance(exc, UsageError) else FAILED
    return status if isinstance(status, int) else 0


def _misused(arguments: Sequence[str], exc: CycloptsError) -> int:
    commands = {name for name in app if not name.startswith("-")}
    command = next((name for name in arguments[:1] if name in commands), "")
    text = " ".join(str(exc).split())
    Screen().fault(strict(f"hookline: {text} See: hookline {command} --help".replace("  ", " ")))
    return USAGE


def _with_values(arguments: Sequence[str]) -> list[str]:
    """Expand `--hooks` of `hookline chat` without a value to all hooks."""
    expanded: list[str] = []
    ours = arguments[:1] == ["chat"]  # other commands may pass words on
    for before, word, after in zip(["", *arguments], arguments, [*arguments[1:], ""], strict=False):
        expanded.append(word)
        text = before in ("-m", "--message")
        if ours and word == "--hooks" and not text and after not in ("all", "decisions"):
            expanded.append("all")
    return expanded
