"""The tool `plan`: the list of what is to be done, in `run.meta["plan"]`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from hookline import Run, Tool
from hookline.errors import ToolCallError

PLAN: Final = "plan"
"""The key in `run.meta`, and the type of the status."""
MAX_ITEMS: Final = 100
MAX_TEXT: Final = 500


@dataclass(frozen=True)
class Item:
    """A part of a plan.

    Args:
        text: What is to be done.
        status: How far it is.
    """

    text: str
    status: Literal["open", "active", "done"] = "open"


def plan_tool() -> Tool[Any, Any]:
    """Make the tool that keeps a plan."""

    async def plan(run: Run[Any], items: list[Item]) -> str:
        """Write down the plan of a longer task, and how far it is. Each call replaces the plan.

        Args:
            items: All parts of the plan, in order.
        """
        if len(items) > MAX_ITEMS:
            raise ToolCallError(f"a plan must have at most {MAX_ITEMS} items")
        entries = [{**asdict(item), "text": item.text[:MAX_TEXT]} for item in items]
        run.meta[PLAN] = entries
        await run.status(PLAN, {"items": entries})
        done = sum(item.status == "done" for item in items)
        return f"{done} of {len(items)} done"

    return Tool(plan, idempotent=True)
