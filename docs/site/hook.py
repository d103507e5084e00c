"""What MkDocs is told beside mkdocs.yml: three kinds of pages that are no files in docs/.

- README.md is the home page and CHANGELOG.md a page: each is written once, at the root.
- A file outside docs/ that a page links to (an example, a test, the licence) becomes a page of its
  own under source/. So a link such as `../tests/test_house.py` works on a code host, where it is
  the file, and on the site, which needs no code host. One that leads to no file fails the build.
- reference/<module>.md is made for each public module, from its docstrings.

After the build, the site must hold each public name and must load nothing from elsewhere.
"""

from __future__ import annotations

import ast
import logging
import re
import zlib
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

log = logging.getLogger("mkdocs.hooks.hookline")

ROOT = Path(__file__).resolve().parents[2]
FROM_ROOT = {"index.md": "README.md", "changelog.md": "CHANGELOG.md"}
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(\]\(|(?:href|src|srcset)=\")([^)\"#:\s]+)((?:#[^)\"\s]*)?[)\"])")
LANGUAGES = {".py": "python", ".md": "markdown", ".sh": "sh", ".toml": "toml", ".mjs": "javascript"}
FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\"'\s>]+"
    r"|<link\b(?![^>]*rel=[\"']?canonical)[^>]*\bhref=[\"']?(?:https?:)?//[^\"'\s>]+"
    r"|url\([\"']?(?:https?:)?//[^)]+"
    r"|@import\s+[\"'](?:https?:)?//[^\"']+"
)


def _place(uri: str) -> str:
    """Where a page stands in the checkout."""
    return FROM_ROOT.get(uri, f"docs/{uri}")


def _page(path: str) -> str:
    """The page of a file of the checkout, as a place below docs/."""
    for uri, source in FROM_ROOT.items():
        if path == source:
            return uri
    return path[len("docs/") :] if path.startswith("docs/") else f"source/{path}.md"


def _targets(text: str, uri: str) -> set[str]:
    """The files of the checkout that a page links to, seen from its root."""
    base = PurePosixPath(_place(uri)).parent
    links = LINK.findall(FENCE.sub("", text))
    return {normpath((base / target).as_posix()) for _, target, _ in links}


def _rewritten(text: str, uri: str) -> str:
    """The page with its links as the site needs them; code stays as it is."""
    base = PurePosixPath(_place(uri)).parent
    here = PurePosixPath(uri).parent.as_posix()

    def link(found: re.Match[str]) -> str:
        path = normpath((base / found[2]).as_posix())
        if not (ROOT / path).exists() and not path.startswith("docs/"):
            return found[0]  # told of in on_files
        return f"{found[1]}{relpath(_page(path), here)}{found[3]}"

    out: list[str] = []
    end = 0
    for fence in FENCE.finditer(text):
        out += [LINK.sub(link, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*out, LINK.sub(link, text[end:])])


def _shown(path: str) -> list[str]:
    """The files that a page of source shows: the file itself, or all of a folder's."""
    if not (ROOT / path).is_dir():
        return [path] if (ROOT / path).is_file() else []
    files = sorted(each for each in (ROOT / path).rglob("*") if each.suffix in LANGUAGES)
    return [each.relative_to(ROOT).as_posix() for each in files]


def _source_page(path: str) -> str:
    out = [f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n"]
    for each in _shown(path):
        text = (ROOT / each).read_text(encoding="utf-8")
        language = LANGUAGES.get(Path(each).suffix, "text")
        head = "" if each == path else f"## {each.removeprefix(f'{path}/')}\n\n"
        out.append(f"{head}``````{language}\n{text.rstrip()}\n``````\n")
    return "\n".join(out)


def _names(module: str) -> list[str]:
    """The public names of a module, read and not imported: the site needs none of the extras."""
    path = ROOT / "src" / module.replace(".", "/")
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [name for name in ast.literal_eval(node.value) if name != "__version__"]
    return []


def _reference(module: str) -> str:
    names = _names(module)
    if not names:
        log.warning(f"{module} has no public names")
    members = "".join(f"        - {name}\n" for name in names)
    return f"# {module}\n\n::: {module}\n    options:\n      members:\n{members}"


def _modules(nav: Any) -> list[str]:
    """The modules that the navigation has a page for."""
    if isinstance(nav, str):
        place, name = nav.rpartition("/")[::2]
        return [name.removesuffix(".md")] if place == "reference" else []
    entries = nav if isinstance(nav, list) else nav.values()
    return [module for entry in entries for module in _modules(entry)]


def on_files(files: Files, config: Any) -> Files:
    def add(uri: str, text: str) -> None:
        files.append(File.generated(config, uri, content=text))

    for uri, source in FROM_ROOT.items():
        add(uri, (ROOT / source).read_text(encoding="utf-8"))
    for module in _modules(config.nav):
        add(f"reference/{module}.md", _reference(module))
    wanted: set[str] = set()
    for file in files.documentation_pages():
        for path in _targets(file.content_string, file.src_uri):
            if path.startswith("docs/") or path in FROM_ROOT.values():
                continue
            if not _shown(path):
                log.warning(f"{_place(file.src_uri)} links to {path}, which is not there")
            else:
                wanted.add(path)
    for path in sorted(wanted):
        add(f"source/{path}.md", _source_page(path))
    return files


def _pictured(text: str) -> str:
    """The home page with the picture in place of the drawing that also a terminal can show."""
    drawing = next((found for found in FENCE.finditer(text) if "│ onChatStart" in found[0]), None)
    if drawing is None:
        return text
    picture = "![The life of a chat, and its hook points](docs/images/life.svg)"
    return text[: drawing.start()] + picture + text[drawing.end() :]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    uri: str = page.file.src_uri
    if uri == "index.md":
        markdown = _pictured(markdown)
    return markdown if uri.startswith(("source/", "reference/")) else _rewritten(markdown, uri)


def on_page_context(context: Any, page: Any, **_: Any) -> Any:
    """The table of contents of a reference page has the names of the module, not their parts."""
    if page.file.src_uri.startswith("reference/"):
        for entry in page.toc:
            for name in entry.children:
                name.children.clear()
    return context


def on_post_build(config: Any) -> None:
    site = Path(config.site_dir)
    inventory = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    there = {line.split()[0] for line in zlib.decompress(inventory).decode().splitlines()}
    for module in _modules(config.nav):
        for name in _names(module):
            if f"{module}.{name}" not in there:
                log.warning(f"{module}.{name} has no place in the API reference")
    for path in sorted(site.rglob("*")):
        if path.suffix in (".html", ".css"):
            for found in FETCHED.findall(path.read_text(encoding="utf-8")):
                log.warning(f"{path.relative_to(site)} loads something from elsewhere: {found}")
