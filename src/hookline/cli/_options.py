"""Parameters that several commands have."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter

Format: TypeAlias = Literal["text", "json"]
Debug = Annotated[bool, Parameter(help="Show tracebacks of errors.")]
Deps = Annotated[
    str | None,
    Parameter(help="module:attribute of the deps, or of a callable that returns deps."),
]
Target = Annotated[
    str, Parameter(help="module:attribute of an agent, or of a function that returns an agent.")
]
