"""What a rule with a `*` must not be trusted with: programs that run others, and such options.

`bash(git log*)` was not written for `git log --output=file`. Where an option of this table stands
in a command, only a rule without `*` allows it.
"""

from __future__ import annotations

from typing import Final

RUNNERS: Final = frozenset(
    (
        *("awk", "bash", "busybox", "bun", "chroot", "chrt", "csh", "dash", "deno", "doas"),
        *("env", "expect", "find", "fish", "flock", "gawk", "gdb", "ionice", "java", "ksh"),
        *("ltrace", "lua", "mawk", "nice", "node", "nohup", "nsenter", "osascript", "parallel"),
        *("perl", "php", "pipx", "pwsh", "python", "python2", "python3", "rlwrap", "ruby"),
        *("runuser", "script", "setarch", "setpriv", "setsid", "sh", "ssh", "stdbuf", "strace"),
        *("su", "sudo", "systemd-run", "taskset", "tclsh", "tcsh", "timeout", "unshare", "uv"),
        *("uvx", "watch", "xargs", "zsh"),
    )
)
CHANGE_FOLDER: Final = frozenset(("cd",))

_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "git": (
        *("-c", "-C", "-O", "-o", "--config-env", "--exec", "--exec-path", "--ext-diff"),
        *("--git-dir", "--open-files-in-pager", "--output", "--receive-pack", "--textconv"),
        *("--upload-pack", "--work-tree", "-p", "--paginate"),
    ),
    "rg": ("--pre", "--hostname-bin", "-z", "--search-zip"),
    "sort": ("-o", "--output", "--compress-program", "-T", "--temporary-directory"),
    "tar": ("-I", "--to-command", "--use-compress", "--checkpoint", "-F", "--info-script"),
    "fd": ("-x", "-X", "--exec"),
    "tree": ("-o",),
    "man": ("-P", "-H", "--pager", "--html"),
    "less": ("-o", "-O", "+", "--log-file", "--LOG-FILE"),
    "date": ("-s", "--set", "-f", "--file"),
    "make": ("-f", "-C", "--file", "--makefile", "--directory", "--eval", "-E"),
    "go": ("-exec", "-toolexec", "-overlay", "-o", "-C", "-modfile"),
    "npm": ("--prefix", "--script-shell", "-C", "--userconfig", "--globalconfig"),
    "cargo": ("--config", "-Z", "--manifest-path"),
    "pytest": ("-p", "-c", "--rootdir", "--confcutdir", "-o", "--override-ini", "--basetemp"),
    "ruff": ("--config",),
    "mypy": ("--config-file", "--python-executable"),
}
_SCRIPTS: Final = ("sed",)  # their first word is a program that can write files or run commands
_SHORT: Final = 2


def writes_or_runs(words: list[str]) -> bool:
    """Return whether a command has an option that runs another program or writes a file."""
    name = words[0].rpartition("/")[2]
    if name in _SCRIPTS:
        return True
    return any(_is_option(word, option) for option in _OPTIONS.get(name, ()) for word in words[1:])


def _is_option(word: str, option: str) -> bool:
    """Return whether a word is this option, joined with its value or abbreviated."""
    if not option.startswith("--"):
        if len(option) > _SHORT:
            return word.lstrip("-").startswith(option.lstrip("-"))
        cluster = word.startswith("-") and not word.startswith("--")
        return (option == "+" and word.startswith("+")) or (cluster and option[1:] in word[1:])
    name = word.partition("=")[0]
    long = word.startswith("--") and len(name) > _SHORT
    return long and (word.startswith(option) or option.startswith(name))
