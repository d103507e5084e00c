"""`hookline models`: the providers that a model's name may begin with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from rich.cells import cell_len

from hookline.cli._options import Format
from hookline.cli._terminal.clean_text import strict
from hookline.cli._terminal.screen import show_data
from hookline.cli._terminal.styled_lines import Line
from hookline.cli._terminal.text_layout import pad
from hookline.models import MODEL_ENTRY_POINTS
from hookline.providers.presets import OWN, PRESETS


def rows() -> list[dict[str, Any]]:
    """Return one row per provider, including providers registered by installed packages."""
    rows: list[dict[str, Any]] = []
    for prefix, row in {**OWN, **PRESETS}.items():
        has_key = any(map(os.environ.get, row.keys))
        rows.append({"prefix": prefix, **msgspec.to_builtins(row), "key_set": has_key})
    ours = {row["prefix"] for row in rows}
    for point in sorted(entry_points(group=MODEL_ENTRY_POINTS), key=lambda point: point.name):
        if point.name not in ours:
            rows.append({"prefix": point.name, "title": strict(point.value), "keys": []})
    return rows


def listing(providers: Sequence[dict[str, Any]]) -> list[Line]:
    """Return a line per provider."""
    cells = [
        [
            f"{row['prefix']}:…",
            row["title"],
            row.get("speaks", ""),
            f"hookline[{row['extra']}]" if row.get("extra") else "",
            _key(row),
        ]
        for row in providers
    ]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    lines: list[Line] = []
    for row in cells:
        name, *rest = (pad(cell, room) for cell, room in zip(row, widths, strict=True))
        lines.append([("name", name), ("", "  "), ("dim", "  ".join(rest).rstrip())])
    return lines


def _key(row: dict[str, Any]) -> str:
    """Return the environment variable of a provider's key, with a mark if it is set."""
    if not row["keys"]:
        return ""
    rest = " (optional)" if row.get("keyless") else ""
    return f"{'✓' if row.get('key_set') else ' '} {row['keys'][0]}{rest}"


def models(
    *, output: Annotated[Format, Parameter(help="json: a list of providers.")] = "text"
) -> None:
    """List the providers that a model's name may begin with."""
    providers = rows()
    show_data(providers, listing(providers), output, piped=120)
