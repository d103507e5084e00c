"""Writes the table of attributes that OpenTelemetry's conventions ask of each of our spans.

    python scripts/dev/conventions.py v1.41 v1.41.1 path/to/model/gen-ai/spans.yaml

The arguments are our name of a version, the tag or commit that the file is from, and the file: from
the repository semantic-conventions, or semantic-conventions-genai for `genai-v0.1.0`. Needs PyYAML.
Other versions in the table stay. `tests/otel/test_conventions.py` checks our spans against it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TABLE = Path(__file__).resolve().parents[2] / "tests" / "otel" / "conventions.json"
SPANS = ("gen_ai.invoke_agent.internal", "gen_ai.inference.client", "gen_ai.execute_tool.internal")
LEVELS = ("required", "conditionally_required", "recommended", "opt_in")


def groups_of(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Everything that has attributes, by its id, in either format of the files."""
    found = {each["id"]: each for each in data.get("groups", ())}
    found |= {each["id"]: each for each in data.get("attribute_groups", ())}
    found |= {f"span.{each['type']}": each for each in data.get("spans", ())}
    return found


def attributes_of(groups: dict[str, dict[str, Any]], id: str) -> Iterator[tuple[str, str]]:
    """Each attribute with its level; what is said later counts."""
    group = groups[id]
    if "extends" in group:
        yield from attributes_of(groups, group["extends"])
    for each in group.get("attributes", ()):
        if "ref_group" in each:
            yield from attributes_of(groups, each["ref_group"])
        elif "requirement_level" in each:
            level = each["requirement_level"]
            yield each["ref"], level if isinstance(level, str) else next(iter(level))


def main(version: str, source: str, path: str) -> None:
    import yaml

    groups = groups_of(yaml.safe_load(Path(path).read_text()))
    spans: dict[str, dict[str, list[str]]] = {}
    for span in SPANS:
        levels = dict(attributes_of(groups, f"span.{span}"))
        spans[span] = {
            level: sorted(name for name, its in levels.items() if its == level) for level in LEVELS
        }
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    table[version] = {"source": source, "spans": spans}
    TABLE.write_text(json.dumps(dict(sorted(table.items())), indent=2) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
