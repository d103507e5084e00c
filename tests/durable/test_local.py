"""What durable chats cost those who have none: no package, and no bytecode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("asyncpg", "httpx", "hypercorn", "redis", "restate", "sqlalchemy")
WITHOUT = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {PACKAGES!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_local_chat_runs_the_same_bytecodes_with_and_without_durable_chats() -> None:
    found = json.loads(run("-m", "tests.durable._cost"))
    alone = found.pop("alone")
    assert alone["iteration"] > alone["chunk"] > 0
    assert found == dict.fromkeys(["beside the engines", "Durable() outside of a job"], alone)


@pytest.mark.parametrize("module", ["", ".sqlite", ".postgres", ".restate"])
def test_importing_an_engine_loads_no_package_of_its_extra(module: str) -> None:
    code = (
        f"import sys, hookline.durable{module}\n"
        f"print([name for name in {PACKAGES!r} if name in sys.modules])"
    )
    assert run("-c", code).strip() == "[]"


def test_without_the_extras_a_durable_chat_runs_in_sqlite(tmp_path: Path) -> None:
    code = f"""{WITHOUT}
import asyncio
from hookline import Agent
from hookline.durable import chats, client
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel

async def main():
    url = "sqlite:///{tmp_path}/jobs.db"
    async with chats(Agent(ScriptedModel("Hello."), runtime=Durable()), url), client(url) as jobs:
        print((await jobs.result(await jobs.start("Hi."))).text)

asyncio.run(main())
"""
    assert run("-c", code).strip() == "Hello."


@pytest.mark.parametrize(
    ("url", "extra"),
    [("postgresql://localhost/chats", "postgres"), ("http://localhost:8080", "restate")],
    ids=["postgres", "restate"],
)
@pytest.mark.parametrize("made", ["client(url)", "chats(agent, url)"], ids=["client", "worker"])
def test_an_engine_whose_extra_is_missing_says_how_to_install_it(
    url: str, extra: str, made: str
) -> None:
    code = f"""{WITHOUT}
from hookline import Agent
from hookline.durable import chats, client
from hookline.errors import UsageError
from hookline.runtimes import Durable
from hookline.testing import ScriptedModel

agent, url = Agent(ScriptedModel("x"), runtime=Durable()), {url!r}
try:
    {made}
except UsageError as exc:
    print(exc)
"""
    assert f"pip install 'hookline[{extra}]'" in run("-c", code)
