"""Changes to the code around guards that the tests of guards must notice.

`scripts/dev/mutate --guards` makes each change in a copy of the sources, and runs TESTS and the
probes of `battery.py` with it. A change is a file, a text that is in it once, and the text in its
place.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = ROOT / "src" / "hookline"
TESTS: Final = (  # the slow ones last
    "tests/chat/test_approvals.py", "tests/chat/test_ask.py",
    "tests/chat/test_tool_calls.py", "tests/chat/test_stop.py", "tests/chat/test_around_tool.py",
    "tests/chat/test_handoffs.py", "tests/chat/test_sub_agents.py", "tests/chat/test_refusals.py",
    "tests/hooks/test_throws.py", "tests/hooks/test_global_bus.py",
    "tests/providers/test_provider_tools.py", "tests/ready/test_guards.py",
    "tests/guards/test_reach.py", "tests/guards/test_last_look.py", "tests/guards",
)  # fmt: skip
TIMEOUT: Final = 900
JUDGES: Final = {
    "tests": (
        ("pytest", "-q", "-x", "-n0", "--no-header", "-p", "no:cacheprovider", "--timeout=60",
         *TESTS),
        r"^(?:FAILED|ERROR) (\S+)",
    ),
    "probe": (("tests.guards.battery",), r"^(.+)$"),
}  # fmt: skip
"""What must notice each change: the command, and a pattern for what noticed it."""


class Mutation(NamedTuple):
    """One change."""

    name: str
    file: str
    old: str
    new: str


BATCH, RUN, APPROVAL = "_chat/batch.py", "_chat/run_tool.py", "_chat/approval.py"
WEB, MCP = "web/_protocols/incoming.py", "mcp/_server/questions.py"
VIEWS, ONE, LOOK = "_hooks/views.py", "_hooks/one_hook.py", "_chat/guards.py"
MUTATIONS: Final = tuple(
    Mutation(*each)
    for each in (
        ("hooks of preToolCall never run", BATCH,
         "elif not (chat.view.preToolCall or run.tool.client):", "elif not run.tool.client:"),
        ("a denial lets the call run", BATCH,
         'run.refuse(answer, "error" if verdict.failed else "denied")', "run.let_run()"),
        ("asks are forgotten", BATCH, "elif verdict.asks:", "elif False:"),
        ("Deny counts as None", BATCH, "            end = ToolFailure(end.reason)\n",
         "            return CallVerdict(call=call)\n"),
        ("an end does not end the chain", "_hooks/call_rules.py",
         "                end = part\n                return None",
         "                end = part\n                return ctx"),
        ("on_error=deny passes", ONE,
         'return ToolFailure("the call was denied: its check failed", type="Denied")',
         "return None"),
        ("ToolDenied in preToolCall passes", ONE,
         'return ToolFailure.of(exc).replace(type="Denied")', "return None"),
        ("timeout= of hooks is ignored", ONE,
         "return work if hook.timeout is None else", "return work if True else"),
        ("tools= never matches", "_hooks/call_rules.py",
         "if hook.tools is not None and tool not in hook.tools:", "if hook.tools is not None:"),
        ("nobody can answer: runs", APPROVAL,
         'run.refuse(ToolFailure(reason, type="Denied"), "denied")', "run.let_run()"),
        ("Deny of an answer runs", APPROVAL,
         'run.refuse(ToolFailure(decision.reason, type="Denied"), "denied")', "run.let_run()"),
        ("digest not checked when it runs", APPROVAL,
         "if not _is_sealed(request):  #", "if False:  #"),
        ("tool not admitted after an answer", APPROVAL,
         "    error = None if may_have_run else admit(chat, run)\n", "    error = None\n"),
        ("digest not checked in answers", APPROVAL,
         "        if not _is_sealed(request):\n", "        if False:\n"),
        ("expired answers count", APPROVAL,
         "if now > request.expires:", "if False:"),
        ("answers are not claimed", "_chat/resume.py",
         "await chat.conversation.claim(chat.chat_id, answers)", "pass"),
        ("resume without the chat's guards", "_chat/entry.py",
         "if step is None or chat.input.only_hooks:", "if True:"),
        ("only_hooks drops required hooks", VIEWS,
         "return not hook.declared or bool(hook.options.required)", "return not hook.declared"),
        ("inherit= does nothing", VIEWS,
         "return lambda hook: bool(hook.options.inherit) and", "return lambda hook: False and"),
        ("inherited for one level only", VIEWS,
         "        for bus, keep in parent.sources\n        if bus is not global_bus\n    )",
         "        for bus, keep in parent.sources\n"
         "        if bus is not global_bus and keep is None\n    )"),
        ("no global hooks in sub-agents", VIEWS,
         "return (*shared_sources, *above, *own)", "return (*above, *own)"),
        ("handoff loses the first agent's hooks", "_chat/speaker.py",
         "View(*view.sources, (speaker.bus, None))", "View((speaker.bus, None))"),
        ("handoff ignores the target's hooks", "_chat/speaker.py",
         "View(*view.sources, (speaker.bus, None))", "View(*view.sources)"),
        ("unoffered tools run", RUN, "if not run.is_offered:", "if False:"),
        ("another tool of that name runs", RUN,
         "if known_tool is not tool:", "if known_tool is None:"),
        ("a wrapper changes an approved call", RUN,
         "if run.request is not None and call.arguments != run.call.arguments:", "if False:"),
        ("not idempotent, runs again", RUN,
         "        if tool.idempotent:\n", "        if True:\n"),
        ("the approver's timeout approves", APPROVAL,
         'return Deny("the approval expired before it was answered")', "return Approve()"),
        ("a new chat approves what waits", "_chat/resume.py",
         'Deny("the user continued without answering")',
         "__import__('hookline._base.returns', fromlist=['Approve']).Approve()"),
        ("a Stop lets its siblings run", BATCH,
         "            self.stopping = True\n", "            pass\n"),
        ("guards may name provider-run tools", "_chat/reach.py",
         "if matches(name, patterns):", "if False:"),
        ("no last look", LOOK, "return run.judged is not", "return False and run.judged is not"),
        ("a look is not used up by a run", RUN,
         "run.judged = None  # each", "pass  # each"),
        ("no look after an approval", APPROVAL,
         "run.judged = None  # its guards", "pass  # its guards"),
        ("questions of the last look are answered", LOOK,
         "if end is None and asks and run.approved != call:", "if False:"),
        ("guards do not inherit", "_hooks/option_checks.py",
         'options["inherit"] = True  #', "pass  #"),
        ("ready-made guards may name provider-run tools", "hooks/_common.py",
         "if isinstance(tool, ProviderTool) and (not", "if False and (not"),
        ("a denial in the web approves", WEB,
         'return Deny(reason or "denied by the user")', "return Approve()"),
        ("an answer in the web for other arguments counts", WEB,
         "if answer.arguments is not msgspec.UNSET and not _same(", "if False and not _same("),
        ("an answer that an AG-UI client cancels approves", "web/_protocols/ag_ui/messages.py",
         'decision_of(False, "cancelled by the user")', "decision_of(True)"),
        ("an MCP client that cannot ask approves", MCP,
         'return Deny("the client cannot ask its user")', "return Approve()"),
        ("a user of MCP who declines approves", MCP,
         'return Deny("the user declined")', "return Approve()"),
        ("a user of MCP who does not approve approves", MCP,
         'Deny("the user did not approve")', "Approve()"),
    )
)  # fmt: skip


def changed(mutation: Mutation) -> str:
    """The text of the file with the change; raises ValueError if its place is not there once."""
    text = (SOURCES / mutation.file).read_text(encoding="utf-8")
    if text.count(mutation.old) != 1:
        raise ValueError(f"{mutation.name}: {mutation.old!r} is not in {mutation.file} once")
    return text.replace(mutation.old, mutation.new)


@contextmanager
def copy_with(mutation: Mutation | None) -> Iterator[dict[str, str]]:
    """A copy of the sources with this change; yields the environment in which it is imported."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "hookline"
        shutil.copytree(SOURCES, package, ignore=shutil.ignore_patterns("__pycache__"))
        env = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "CI": "true"}
        if mutation is not None:
            (package / mutation.file).write_text(changed(mutation), encoding="utf-8")
            _check_import(mutation, env, package)
        yield env


def _check_import(mutation: Mutation, env: dict[str, str], package: Path) -> None:
    """Raise ValueError if the copy is not imported: every test would fail, and prove nothing."""
    module = f"hookline.{mutation.file.removesuffix('.py').replace('/', '.')}"
    command = [sys.executable, "-P", "-c", f"import hookline, {module} as m; print(m.__file__)"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    if done.stdout.strip() != str(package / mutation.file):
        raise ValueError(f"{mutation.name}: the copy is not imported: {done.stderr or done.stdout}")


def killer(mutation: Mutation | None, judge: str) -> str | None:
    """What notices this change, such as the name of a test; None if nothing does."""
    command, failure = JUDGES[judge]
    try:
        with copy_with(mutation) as env:
            done = subprocess.run(
                [sys.executable, "-P", "-m", *command],
                cwd=ROOT, env=env, capture_output=True, text=True, timeout=TIMEOUT,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no end within {TIMEOUT} s"
    if done.returncode == 0:
        return None
    match = re.search(failure, done.stdout, re.MULTILINE)
    if done.returncode != 1 or match is None:  # it could not judge: an error proves nothing
        name = mutation.name if mutation else "no change"
        raise ValueError(f"{name}: the {judge} ended with {done.returncode}: {done.stderr}")
    return match[1]


def main(modules: Sequence[str] = (), *, jobs: int = 1) -> int:
    """Try the changes of these modules, by default all; returns 1 if one survived."""
    prefixes = tuple(module.replace(".", "/") for module in modules) or ("",)
    mutations = [each for each in MUTATIONS if each.file.startswith(prefixes)]
    if not mutations:
        raise ValueError(f"no change is in {modules}; name a module of hookline, as in _chat.batch")
    pairs = [(mutation, judge) for mutation in mutations for judge in JUDGES]
    for judge in JUDGES:
        if found := killer(None, judge):
            raise ValueError(f"the {judge} must pass without a change, but did not: {found}")
    survivors = 0
    with ThreadPoolExecutor(jobs) as pool:
        killers = pool.map(killer, *zip(*pairs, strict=True))
        for (mutation, judge), found in zip(pairs, killers, strict=True):
            end = f"killed by the {judge} ({found})" if found else f"SURVIVED the {judge}"
            print(f"{mutation.name}: {end}", flush=True)
            survivors += not found
    print(f"{len(mutations)} changes, {survivors} survived the tests or the probe")
    return 1 if survivors else 0
