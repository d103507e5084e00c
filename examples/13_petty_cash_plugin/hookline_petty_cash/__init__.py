"""Hooks that keep an agent's payments small, and write them down.

An application that wants another limit calls `hooks(limit=…)` itself; one that finds them by their
entry point gets the defaults.
"""

from hookline import Deny, HookDef, define_hook
from hookline.points import OnToolCallResult, PreToolCall


def hooks(limit: int = 50) -> list[HookDef]:
    # `required`: a chat that chooses its hooks cannot leave this one out.
    @define_hook(
        "preToolCall",
        id="small_sums",
        required=True,
        priority=200,
        on_error="deny",  # what is no number is not paid either
        tools=["pay"],
    )
    def small_sums(ctx: PreToolCall) -> Deny | None:
        if ctx.call.arguments["euros"] <= limit:
            return None
        return Deny(f"the petty cash pays {limit} euros at most")

    @define_hook("onToolCallResult", id="receipt", priority=-10, tools=["pay"])
    def receipt(ctx: OnToolCallResult) -> None:
        print(f"receipt: {ctx.call.arguments}")

    return [small_sums, receipt]
