"""The pages of docs/frontends/, and the configurations of docs/frontends.md, built by Vite."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.web._clients import JS, need_node

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r'^```(\w+) title="([^"]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
FILES = {title: text for _, title, text in BLOCK.findall((DOCS / "frontends.md").read_text())}
FILES |= {
    path.relative_to(DOCS / "frontends").as_posix(): path.read_text()
    for path in DOCS.glob("frontends/**/*.*")
}
INDEX = (
    '<!doctype html><title>Chat</title><link rel="icon" href="data:,"><div id="root"></div>'
    '<script type="module" src="{}"></script>'
)
PLAIN = "open((init) => new Chat(init))"
IMPORT = 'import { withTools } from "./tools";\n'


def _sdk(files: dict[str, str]) -> dict[str, dict[str, str]]:
    """The pages of one framework, by the version of the AI SDK."""
    agent = {"5": "agent-5.ts", "6": "agent.ts", "7": "agent.ts"}
    return {version: {**files, "src/agent.ts": agent[version]} for version in agent}


# by page: which file of the docs stands where
PAGES: dict[str, dict[str, str]] = {
    **{f"react-{v}": f for v, f in _sdk({"src/main.tsx": "react/main.tsx"}).items()},
    **{
        f"vue-{v}": f
        for v, f in _sdk({"src/main.ts": "vue/main.ts", "src/App.vue": "vue/App.vue"}).items()
    },
    **{
        f"svelte-{v}": f
        for v, f in _sdk(
            {"src/main.ts": "svelte/main.ts", "src/App.svelte": "svelte/App.svelte"}
        ).items()
    },
    **{
        f"tools-{v}": {"src/tools.ts": "tools.ts", **f}
        for v, f in _sdk({"src/main.tsx": "react/main.tsx"}).items()
    },
    "ag-ui": {"src/main.ts": "ag-ui/main.ts"},
    "fetch": {"src/main.ts": "fetch/main.ts"},
}


def write(folder: Path) -> None:
    """Write the pages, and the configuration that serves them."""
    for page, files in PAGES.items():
        (folder / page / "src").mkdir(parents=True)
        for name, title in files.items():
            text = FILES[title]
            if "src/tools.ts" in files and name == "src/main.tsx":  # as the page says
                assert PLAIN in text
                text = IMPORT + text.replace(PLAIN, "open(withTools)")
            (folder / page / name).write_text(text)
        main = next(name for name in files if name.startswith("src/main."))
        (folder / page / "index.html").write_text(INDEX.format(f"/{page}/{main}"))
    (folder / "vite.config.ts").write_text(FILES["vite.config.ts"])


@contextmanager
def beside_the_packages() -> Iterator[Path]:
    """A folder of this process alone, from which the packages are found."""
    JS.joinpath("frontends").mkdir(exist_ok=True)
    with TemporaryDirectory(dir=JS / "frontends") as name:
        yield Path(name)


@asynccontextmanager
async def built(target: str) -> AsyncIterator[str]:
    """All pages, built once and served; `/agent` leads to the server at `target`."""
    node = need_node()
    with beside_the_packages() as folder:
        write(folder)
        async with _served(node, folder, target) as url:
            yield url


@asynccontextmanager
async def _served(node: str, folder: Path, target: str) -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        node,
        "frontends.mjs",
        str(folder),
        target,
        cwd=JS,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(120):
            line = await process.stdout.readline()
            error = b"" if line else await process.stderr.read()
        assert line, error.decode()
        yield line.decode().strip()
    finally:
        process.stdin.close()
        if process.returncode is None:
            process.terminate()
        await process.wait()


class Door:
    """An ASGI application that each test puts its own behind."""

    def __init__(self) -> None:
        self.behind: Any = None
        self.pages = ""
        """Where the pages are served."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self.behind(scope, receive, send)
