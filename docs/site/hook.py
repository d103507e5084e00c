"""What MkDocs is told beside mkdocs.yml: four kinds of pages that are no files in docs/.

- README.md is the home page and CHANGELOG.md a page: each is written once, at the root.
- scripts/docs writes pages that are generated into build/docs.
- A file outside docs/ that a page links to (an example, a test, the licence) becomes a page of its
  own under source/. So a link such as `../tests/test_house.py` works on a code host, where it is
  the file, and on the site, which needs no code host. One that leads to no file fails the build.
- reference/<module>.md is made for each public module, from its docstrings. A type alias that a
  signature names gets a heading on the first page that needs it, so that the signature can link it.

After the build, the site must hold each public name and must load nothing from elsewhere.
"""

from __future__ import annotations

import ast
import logging
import re
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

log = logging.getLogger("mkdocs.hooks.hookline")

ROOT = Path(__file__).resolve().parents[2]
FROM_ROOT = {"index.md": "README.md", "changelog.md": "CHANGELOG.md"}
BUILT = ROOT / "build" / "docs"  # the pages that scripts/docs has generated
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(\]\(|(?:href|src|srcset)=\")([^)\"#:\s]+)((?:#[^)\"\s]*)?[)\"])")
LANGUAGES = {".py": "python", ".md": "markdown", ".sh": "sh", ".toml": "toml", ".mjs": "javascript"}
FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\"'\s>]+"
    r"|<link\b(?![^>]*rel=[\"']?canonical)[^>]*\bhref=[\"']?(?:https?:)?//[^\"'\s>]+"
    r"|url\([\"']?(?:https?:)?//[^)]+"
    r"|@import\s+[\"'](?:https?:)?//[^\"']+"
)


ALIASES = "Type aliases"
AS_ALIAS = (
    "heading_level: 3",
    "show_root_full_path: false",
    "show_root_heading: true",
    "show_root_toc_entry: true",
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
    for node in _body(module):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [name for name in ast.literal_eval(node.value) if name != "__version__"]
    return []


# ── the type aliases in signatures ──────────────────────────────────────────────────────────


@cache
def _body(module: str) -> list[ast.stmt]:
    path = ROOT / "src" / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text("utf-8")).body if file.is_file() else []


def _assigned(node: ast.stmt) -> str | None:
    """The name that a statement assigns."""
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return target.id if isinstance(target, ast.Name) else None


def _definition(module: str, name: str) -> tuple[str, ast.stmt] | None:
    """The module and the statement that define a name, past all imports."""
    for node in _body(module):
        if isinstance(node, ast.If):  # `if TYPE_CHECKING:`
            imports = [each for each in node.body if isinstance(each, ast.ImportFrom)]
        else:
            imports = [node] if isinstance(node, ast.ImportFrom) else []
        for each in imports:
            if each.module and each.module.split(".")[0] == "hookline":
                for alias in each.names:
                    if (alias.asname or alias.name) == name:
                        return _definition(each.module, alias.name)
        if name in (getattr(node, "name", None), _assigned(node)):
            return module, node
    return None


def _is_alias(node: ast.stmt) -> bool:
    """Whether an assignment gives a name to a type; a call makes something else."""
    name = _assigned(node) or ""
    value = getattr(node, "value", None)
    types = (ast.Subscript, ast.BinOp, ast.Constant, ast.Name)
    return name[:1].isupper() and not name.isupper() and isinstance(value, types)


def _annotations(module: str, node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """The types in what a page shows of a definition, each with the module that it is read in."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        for part in ast.walk(node.args):
            if isinstance(part, ast.arg) and part.annotation is not None:
                yield module, part.annotation
        if node.returns is not None:
            yield module, node.returns
    elif isinstance(node, ast.ClassDef):
        for base in node.bases:
            found = _definition(module, ast.unparse(base).split("[")[0])
            if found is not None:
                yield from _annotations(*found)
        for part in node.body:
            name = getattr(part, "name", None) or _assigned(part) or "_"
            if isinstance(part, ast.AnnAssign) and not name.startswith("_"):
                yield module, part.annotation
            elif not name.startswith("_") or name == "__init__":
                yield from _annotations(module, part)
    elif _is_alias(node):
        yield module, node.value  # type: ignore[attr-defined]


def _named(annotation: ast.AST) -> Iterator[str]:
    """The names in a type, also in one that is written as a string."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                yield from _named(ast.parse(node.value, mode="eval"))
            except SyntaxError:
                continue  # the text of a Literal


def _aliases(module: str, seen: set[str]) -> Iterator[str]:
    """The paths of the aliases that the page of a module shows, but for those in `seen`."""
    left = [each for name in _names(module) for each in _overloads(module, name)]
    while left:
        for where, annotation in _annotations(*left.pop(0)):
            for name in _named(annotation):
                found = _definition(where, name)
                if found is None or not _is_alias(found[1]) or f"{found[0]}.{name}" in seen:
                    continue
                seen.add(f"{found[0]}.{name}")
                left.append(found)
                yield f"{found[0]}.{name}"


def _overloads(module: str, name: str) -> Iterator[tuple[str, ast.stmt]]:
    """The definition of a name, and all its overloads."""
    found = _definition(module, name)
    if found is not None:
        for node in _body(found[0]):
            if node is found[1] or getattr(node, "name", None) == getattr(found[1], "name", ""):
                yield found[0], node


def _references(modules: list[str]) -> dict[str, list[str]]:
    """{module: the aliases on its page}."""
    public = ((module, name) for module in modules for name in _names(module))
    defined = ((name, _definition(module, name)) for module, name in public)
    seen = {f"{found[0]}.{name}" for name, found in defined if found}
    return {module: sorted(_aliases(module, seen), key=_last) for module in modules}


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _reference(module: str, aliases: list[str]) -> str:
    names = _names(module)
    if not names:
        log.warning(f"{module} has no public names")
    members = "".join(f"        - {name}\n" for name in names)
    page = f"# {module}\n\n::: {module}\n    options:\n      members:\n{members}"
    if aliases:
        page += f"\n## {ALIASES}\n\nThese names stand for types in the signatures above.\n"
    for path in aliases:
        page += f"\n::: {path}\n    options:\n" + "".join(f"      {each}\n" for each in AS_ALIAS)
    return page


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
    for path in sorted(BUILT.glob("*.md")):
        add(path.name, path.read_text(encoding="utf-8"))
    for module, aliases in _references(_modules(config.nav)).items():
        add(f"reference/{module}.md", _reference(module, aliases))
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
                if name.title != ALIASES:
                    name.children.clear()
    return context


def on_post_build(config: Any) -> None:
    site = Path(config.site_dir)
    inventory = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    there = {line.split()[0] for line in zlib.decompress(inventory).decode().splitlines()}
    for module, aliases in _references(_modules(config.nav)).items():
        for path in (*(f"{module}.{name}" for name in _names(module)), *aliases):
            if path not in there:
                log.warning(f"{path} has no place in the API reference")
    for path in sorted(site.rglob("*")):
        if path.suffix in (".html", ".css"):
            for found in FETCHED.findall(path.read_text(encoding="utf-8")):
                log.warning(f"{path.relative_to(site)} loads something from elsewhere: {found}")
