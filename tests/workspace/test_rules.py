"""Rules: a line that is allowed runs nothing that was not proven; deny and ask find too much."""

import random
import subprocess

import pytest

from hookline.errors import UsageError
from hookline.workspace import Rules, Verdict, plain_commands

# ── plain lines ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("git status", [["git", "status"]]),
        ("a && b | c ; d\ne || f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("echo 'a b' \"c d\" e'f'\"g\"", [["echo", "a b", "c d", "efg"]]),
        ("a;", [["a"]]),
        ("a |\n b", [["a"], ["b"]]),
        ("echo ''", [["echo", ""]]),
        ("echo '$(id)' '`id`'", [["echo", "$(id)", "`id`"]]),
        ("./x.sh -a=b", [["./x.sh", "-a=b"]]),
    ],
)
def test_a_plain_line_is_its_commands(line, commands):
    assert plain_commands(line) == commands


@pytest.mark.parametrize(
    "line",
    [
        *("", " ", "\n", "a &", "a & b", "a &&", "a |", "a |& b", "| a", "a ;; b", "a && && b"),
        *("echo $HOME", "echo `id`", "echo $(id)", 'echo "$(id)"', 'echo "`id`"', "echo ${x}"),
        *("a > b", "a < b", "a 2>&1", "a << x", "<(id)", "(a)", "{ a; }", "echo {a,b}", "echo *"),
        *("echo ?", "echo [a]", "echo ~", "echo a\\ b", "'a' b", '"a"', "A=1 b", "a=b", "x+=1 y"),
        *("eval id", "exec id", ". x", "source x", "command id", "builtin id", "trap id EXIT"),
        *("alias a=b", "export A=b", "declare x", "local x", "set -x", "test -v x", "[ x ]"),
        *("! a", "time a", "if a; then b; fi", "for x in a; do b; done", "while a", "function f"),
        *("f() a", "coproc a", "printf -v 'a[$(id)]' x", "read 'a[$(id)]'", "let x", "unset x"),
        *("echo 'a", 'echo "a', 'echo "a\\"b"', "a #b", "echo a!b", "a\rb", "a\x00b", "a\x1bb"),
        *(
            "a\u2028b",
            "\u00a0a",
            "a\u200bb",
            "wait",
            "hash -p x y",
            "mapfile",
            "enable -f x y",
            "x" * 10_001,
        ),
    ],
)
def test_a_line_that_may_do_more_is_not_plain(line):
    assert plain_commands(line) is None


WORDS = [
    *("a", "b", "c", "a", "b", "'x y'", '"x y"', "''", "-o", "--x=y", "a/b", "1", ":", "@", "%1"),
    *("$a", "$(b)", "`b`", '"$(b)"', "'$(b)'", "{a,b}", "*", "?", "~", "\\", "#", "!", "(", ")"),
    *("{", "}", "eval", "command", "test", "a=b", "[", "[[", "time", "if", "then", "fi", "do"),
    *("\u00e4", "'", '"', "$'b'", "<", ">", ">>", "<<<", "2>", "&", "\r", "exec", "env", "xargs"),
    *("in", "=", "^", "+", "printf", "-v"),
]
LIKELY = WORDS[:16]
JOINTS = [
    *(" ", " ", " ", " ", "", "\t", "\n", ";", " ; ", "&&", " && ", "||", "|", " | ", "&"),
    *(" & ", "|&"),
]
BUILTINS = (":", "true", "false", "echo", "cd", "pwd", "exit", "kill")
LINES = 100_000


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_bash_runs_nothing_but_the_commands_of_a_plain_line(base):
    """Real bash runs 100,000 accepted lines; every program is a stub that writes down its words."""
    stubs = base / "bin"
    stubs.mkdir()
    log = base / "log"
    lines = _accepted(LINES, random.Random(7))
    names = {words[0] for line in lines for words in plain_commands(line) or ()}
    script = _script(log, sorted(names), lines)
    (base / "script").write_text(script)
    done = subprocess.run(
        ["/bin/bash", "--norc", "--noprofile", base / "script"],
        env={"PATH": str(stubs), "HOME": "/nowhere"},
        cwd=stubs,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (base / "end").exists(), done.stderr[-2000:]
    ran = _read(log)
    assert len(ran) == len(lines)
    for number, line in enumerate(lines):
        expected = list(plain_commands(line) or ())
        for words in ran.get(number, []):
            assert words in expected, (line, words)
    together = sum(len(words) for words in ran.values())
    assert together > LINES  # most lines have several commands, and they ran


def _accepted(count, source):
    lines = []
    while len(lines) < count:
        parts = []
        for _ in range(source.randint(1, 6)):
            parts += [
                source.choice(WORDS if source.random() < 0.4 else WORDS[:16]),
                source.choice(JOINTS),
            ]
        line = "".join(parts)
        commands = plain_commands(line)
        if commands and not any(words[0] in BUILTINS for words in commands):
            lines.append(line)
    return lines


def _script(log, names, lines):
    """A script in which each program is a function, and each line is run by `eval`."""
    note = "printf '%s\\0' {} \"$@\" $'\\1' >> \"$LOG\""  # one write, since pipes run side by side
    stubs = [f"function {name} {{ {note.format(_quoted(name))}; }}" for name in names]
    runs = [
        f"printf '%s\\0\\2\\0' {number} >> \"$LOG\"; eval {_quoted(line)} 2>/dev/null"
        for number, line in enumerate(lines)
    ]
    other = f"command_not_found_handle() {{ {note.format('UNKNOWN')}; }}"
    return "\n".join([f"LOG={log}", other, *stubs, *runs, f": > {log.parent}/end"])


def _quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def _read(log):
    """The commands that ran, by the number of the line."""
    ran: dict[int, list[list[str]]] = {}
    number, words = -1, []
    for part in log.read_text(encoding="utf-8").split("\0"):
        if part == "\2":
            number, words = int(words[-1]), []
            ran[number] = []
        elif part == "\1":
            ran[number].append(words)
            words = []
        else:
            words.append(part)
    return ran


# ── commands ────────────────────────────────────────────────────────────────────────────────


def verdict(line, *, confined=True, **rules):
    return Rules(**rules).for_command(line, confined=confined)


@pytest.mark.parametrize(
    ("rule", "line", "allowed"),
    [
        ("bash(git status*)", "git status", True),
        ("bash(git status:*)", "git status -s", True),
        ("bash(git status*)", "git status -s && git status", True),
        ("bash(git status*)", "git statusx", False),
        ("bash(git status*)", "git status; id", False),
        ("bash(git status*)", "git status > x", False),
        ("bash(git status*)", "git status $(id)", False),
        ("bash(git log*)", "git log --output=x", False),
        ("bash(git log*)", "git log --outp=x", False),
        ("bash(git log*)", "git log -c core.x=y", False),
        ("bash(git*)", "git -c core.fsmonitor=id status", False),
        ("bash(ls*)", "lsof", False),
        ("bash(ls*)", "ls -l", True),
        ("bash(npm test)", "npm test", True),
        ("bash(npm test)", "npm test x", False),
        ("bash(xargs*)", "xargs rm", False),
        ("bash(python -m pytest)", "python -m pytest", True),
        ("bash(python*)", "python -c 'import os'", False),
        ("bash(find*)", "find . -delete", False),
        ("bash(rg*)", "rg --pre id x", False),
        ("bash(sort*)", "sort -o x y", False),
        ("bash(sed*)", "sed -n 1p x", False),
        ("bash(tar*)", "tar -xI id", False),
        ("bash", "anything > at all", True),
        ("bash(*)", "anything", True),
    ],
)
def test_an_allow_rule_counts_only_for_what_is_proven(rule, line, allowed):
    assert (verdict(line, allow=[rule]) is not None) == allowed


def test_every_command_of_a_line_needs_a_rule():
    rules = {"allow": ["bash(git status*)", "bash(ls*)"]}
    assert verdict("git status && ls -l", **rules) == Verdict(
        "allow", "bash(git status*), bash(ls*)"
    )
    assert verdict("git status && ls -l && id", **rules) is None


@pytest.mark.parametrize(
    "line",
    [
        *(
            "git push",
            "cd x && git push",
            "git -C x push",
            "bash -c 'git push'",
            "git  push origin",
        ),
        *("sudo git push", "x=push; git $x", "echo a; git push", "/usr/bin/git push", "g'i't push"),
        *("(git push)", "$(git push)", "env A=b git push", "git push --force", "xargs git push"),
    ],
)
@pytest.mark.parametrize("kind", ["deny", "ask"])
def test_deny_and_ask_find_a_command_anywhere(line, kind):
    rules = {kind: ["bash(git push*)"], "allow": ["bash"]}
    assert verdict(line, **rules) == Verdict(kind, "bash(git push*)")


def test_deny_goes_before_ask_and_ask_before_allow():
    rules = {"deny": ["bash(a)"], "ask": ["bash(b)"], "allow": ["bash"]}
    assert [verdict(line, **rules).kind for line in ("a; b", "b", "c")] == ["deny", "ask", "allow"]


def test_without_a_sandbox_a_line_must_not_leave_its_folder():
    rules = {"allow": ["bash(cd*)", "bash(git status*)"]}
    assert verdict("cd x && git status", confined=True, **rules) is not None
    assert verdict("cd x && git status", confined=False, **rules) is None


# ── paths ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        (".env", ".env", True),
        (".env", "sub/.env", True),
        (".env", ".ENV", True),
        (".env", ".environment", False),
        ("**/.env*", "a/b/.env.local", True),
        ("./.env", ".env", True),
        ("./.env", "sub/.env", False),
        ("/secrets", "secrets/a/b", True),
        ("secrets/**", "secrets/a", True),
        ("secrets/**", "sub/secrets/a", False),
        ("**/*.key", "a.key", True),
        ("**/*.key", "a/b.key", True),
        ("a/*.key", "a/b/c.key", False),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[x].txt", "[x].txt", True),
    ],
)
def test_a_path_is_matched_as_in_gitignore(pattern, path, fits):
    assert Rules(deny=[f"read({pattern})"]).hides(path) == fits


def test_what_must_not_be_read_must_not_be_written():
    rules = Rules(deny=["read(.env)"], ask=["edit(*.md)"], allow=["write(docs/**)"])
    assert rules.for_paths("edit", [".env"]).kind == "deny"
    assert rules.for_paths("edit", ["a.md"]).kind == "ask"
    assert rules.for_paths("read", ["a.md"]) is None
    assert rules.for_paths("edit", ["docs/a"]).kind == "allow"
    assert rules.for_paths("edit", ["docs/a", "other"]) is None  # a link out of docs


# ── what is no rule ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "rule", ["", "bash(", "bsh(x)", "bash()", "read( )", "plan(x)", "a b", 1, None, "bash(x) y"]
)
def test_what_is_no_rule_is_refused(rule):
    with pytest.raises(UsageError):
        Rules(allow=[rule])


def test_a_list_is_needed():
    with pytest.raises(UsageError, match="list"):
        Rules(deny="bash(x)")


def test_rules_are_loaded_from_a_file(base):
    path = base / "settings.json"
    path.write_text(
        '{"model": "x", "permissions": {"allow": ["Bash(npm test)"], "deny": ["Read(.env)"]}}'
    )
    rules = Rules.load(path)
    assert rules.hides(".env")
    assert rules.for_command("npm test", confined=True).kind == "allow"
    path.write_text('{"permissions": {"alow": []}}')
    with pytest.raises(UsageError, match="alow"):
        Rules.load(path)
    for text in ("[]", "{", '{"permissions": []}'):
        path.write_text(text)
        with pytest.raises(UsageError):
            Rules.load(path)
    with pytest.raises(UsageError):
        Rules.load(base / "missing.json")
