"""Hold phrases that read as if translated out of what users read; run it to list them.

It reads the pages, the changelog, the docstrings of public names, and every other string of the
package: the texts of errors, the log, and the help of the command line. It skips code on pages.
Each phrase comes with what to write in its place. `.venv/bin/python scripts/dev/prose.py [FILE…]`
checks some. `scripts/dev/prose.py --sample 200 --seed 1` draws sentences instead, for somebody to
read who marks those that have to be read twice. `scripts/dev/prose.py --words` counts the words of
the pages in docs/, without and with their blocks of code.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
CODE = re.compile(r"^(```|~~~).*?^\1\s*$|`[^`\n]*`|\]\([^)]*\)", re.DOTALL | re.MULTILINE)

# A regular expression (case does not matter), and what to write instead.
INSTEAD = {
    r"(?<!there\s)(?:is|are|was|were|be) no (?!longer|use\b|way\b|more\b|less\b|such\b|harm)\w+": (
        "“is not a …”, “there is no …”"
    ),
    r"(?<!there\s)(?:is|are|was|were) (?-i:none)\b": "“is not one”, or name it again",
    r"stand(?:s|ing)? around": "“wraps”",
    r"stood around": "“wrapped”",
    r"stand(?:s|ing)? (?:beside|there|open|still|for itself|in (?:for|it))\b": "“is”, “waits”",
    r"(?:what|that|which|(?<!as\s)it|who) stands?\b": "“is”, “runs”, “works”, or name it",
    r"there where\b": "“where”, “if”, “when”",
    r"mend(?:s|ed|ing)?\b": "“fix”",
    r"(?:a|the|its|each|every|first|second|late) throws?\b": "“an exception”",
    r"(?:hook|handler|tool|wrapper|model|store|it|what|who|that)s? throws?\b": "“raises”",
    r"(?:thrown|threw|throwing)\b(?! away)": "“raised”",
    r"(?:is|are|was|were|be|been|being) told\b(?! (?:apart|from|to (?!the\b)))": (
        "“sees”, “gets”, “is reported”"
    ),
    r"told (?:of|by)\b": "“reported”, “recognised by”",
    r"nobody (?:hears|reads|asks|waits|listens)\b": "“nothing reads”, “without a reader”",
    r"(?:is|are|be|been) heard\b": "“is seen”, “is subscribed”",
    r"what (?:it|they|he|she|a \w+|the \w+) (?:came|comes|come) to\b": "“the result of”",
    r"(?:has|have|had) (?:the|a|no|its|their) say\b": "“decides”",
    r"\w+['’]s affair\b": "“is up to …”",
    r"is dear\b|too dear\b": "“is expensive”",
    r"speaks? of\b": "“names”, “mentions”",
    r"the luck\b": "“the seed”",
    r"shot (?:with|by|in|while|dead)\b": "“killed”",
    r"no more\b(?=[.,;:)]|$)": "“no longer”, “any more”",
    r"of one's own\b": "“your own”",
    r"the face\b": "“the public names”",
    r"nothing came\b": "“no data arrived”",
    r"wrote a call that is\b": "“returned a malformed call”",
    r"is not to be\b": "“must not be”",
}


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Phrase(NamedTuple):
    where: str
    found: str
    instead: str


RULES = [
    (re.compile(r"\b" + what.replace(" ", r"\s+"), re.IGNORECASE), instead)
    for what, instead in INSTEAD.items()
]


def pages() -> list[Path]:
    """Every text file that is looked through."""
    own = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
    return [*own, *sorted(ROOT.glob("docs/*.md")), *sorted((ROOT / "src").rglob("*.py"))]


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """What a person reads of a file: the line at which each text begins, and the text."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        # Code goes; its lines stay, so that places are right.
        yield 1, CODE.sub(lambda code: "\n" * code[0].count("\n") + "`", source)
        return
    tree = ast.parse(source)
    hidden = set(private(tree, public_names(), inside="/_" in str(path.relative_to(ROOT))))
    for each in ast.walk(tree):
        text = getattr(each, "value", None) if isinstance(each, ast.Constant) else None
        if isinstance(text, str) and " " in text and each not in hidden:
            yield getattr(each, "lineno", 1), CODE.sub("`", text)


@cache
def public_names() -> frozenset[str]:
    """Every name that a public module lists."""
    found: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                found.update(ast.literal_eval(node.value))
    return frozenset(found)


def private(tree: ast.Module, public: frozenset[str], *, inside: bool) -> Iterator[ast.expr]:
    """The docstrings that no page of the reference shows."""
    for node in tree.body:
        name = getattr(node, "name", None)
        shown = name in public if name else not inside
        for each in ast.walk(node):
            if isinstance(each, ast.Expr) and not shown:
                yield each.value
            elif isinstance(each, FUNCTIONS) and each is not node and each.name.startswith("_"):
                yield from (line.value for line in each.body if isinstance(line, ast.Expr))


def phrases(text: str) -> Iterator[tuple[int, str, str]]:
    """How many lines down each phrase is, the phrase, and what to write instead."""
    for rule, instead in RULES:
        for found in rule.finditer(text):
            yield text.count("\n", 0, found.start()), " ".join(found[0].split()), instead


def check(paths: Iterable[Path]) -> list[Phrase]:
    return [
        Phrase(f"{path.relative_to(ROOT)}:{line + down}", found, instead)
        for path in paths
        for line, text in texts(path)
        for down, found, instead in phrases(text)
    ]


# ── sentences to be read ────────────────────────────────────────────────────────────────────

FENCE = re.compile(r"^(```|~~~).*?^\1\s*$|^!?\[[^]]*\]\([^)]*\)\s*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`*“])")
LEAST = 6  # words of a sentence that is worth a look


def written(path: Path) -> Iterator[str]:
    """Every text of a file, whole: paragraphs, items and cells of a page; strings of a module."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        for block in re.split(r"\n\s*\n|\n(?=\s*[-*|#]|\s*\d+\. )", FENCE.sub("\n\n", source)):
            yield from block.strip("| \n").split(" | ") if block.startswith("|") else (block,)
        return
    tree = ast.parse(source)
    hidden = set(private(tree, public_names(), inside="/_" in str(path.relative_to(ROOT))))
    pieces = {
        id(piece)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for piece in ast.walk(node)
        if piece is not node
    }
    for each in ast.walk(tree):
        if isinstance(each, ast.JoinedStr):
            yield "".join(
                getattr(part, "value", "") if isinstance(part, ast.Constant) else "…"
                for part in each.values
            )
        elif not isinstance(each, ast.Constant) or each in hidden or id(each) in pieces:
            continue
        elif isinstance(each.value, str):
            yield from each.value.split("\n\n")


def words(page: str) -> tuple[int, int]:
    """The words of a page outside of its blocks of code, and in all.

    A word has a letter or a digit; the frame of a table has none. Tables from scripts count too.
    """
    prose = re.sub(r"^(```|~~~).*?^\1\s*$", "", page, flags=re.DOTALL | re.MULTILINE)
    return len(re.findall(r"\S*\w\S*", prose)), len(re.findall(r"\S*\w\S*", page))


def sample(count: int, seed: int) -> list[str]:
    """So many sentences of what users read, drawn at random, each with its file."""
    found: list[str] = []
    for path in pages():
        if path.name == "CHANGELOG.md":
            continue
        for text in written(path):
            plain = " ".join(LINK.sub(r"\1", text).lstrip("-*#> ").split())
            found += [
                f"{path.relative_to(ROOT)}: {each}"
                for each in END.split(plain)
                if len(re.findall(r"[A-Za-z]{2,}", each)) >= LEAST
            ]
    return random.Random(seed).sample(sorted(set(found)), count)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="FILE")
    parser.add_argument("--sample", type=int, metavar="COUNT", help="draw sentences instead")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--words", action="store_true", help="count the words of docs/ instead")
    told = parser.parse_args(arguments)
    if told.words:
        counts = {page.stem: words(page.read_text()) for page in ROOT.glob("docs/*.md")}
        counts["all of docs/"] = (
            sum(prose for prose, _ in counts.values()),
            sum(whole for _, whole in counts.values()),
        )
        print(" prose   all")
        for page, (prose, whole) in sorted(counts.items(), key=lambda item: -item[1][0]):
            print(f"{prose:6}{whole:6}  {page}")
        return 0
    if told.sample:
        print("\n".join(sample(told.sample, told.seed)))
        return 0
    names: list[str] = told.names
    found = check([Path(name).resolve() for name in names] or pages())
    for each in found:
        print(f"{each.where}: “{each.found}”: write {each.instead}")
    print(f"{len(found)} phrases to change")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
