"""Remembered approvals: a rule answers the question about a call like one that a person approved.

A rule is consulted only after all hooks have let a call pass and one of them has asked. It is bound
to the agent, to a digest of the tool as the person saw it, and to every argument, so a rule never
holds for an argument that it does not name. A default counts as an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from hookline._base.errors import ApprovalError
from hookline._base.messages import ToolCall
from hookline._base.returns import ApprovalRequest, Approve, Rule
from hookline._chat.state import Chat
from hookline._conversations.rules import RULES, add_rule, add_to, list_rules, rules_in
from hookline._tools.tool import AnyTool


def digest(data: tuple[Any, ...]) -> str:
    """The digest of JSON data."""
    from hashlib import sha256  # only here: it costs a millisecond of an import

    return sha256(msgspec.json.encode(data, order="deterministic")).hexdigest()


def seal(tool: AnyTool | None) -> str:
    """A digest of the tool as the person who answers knows it; its code may change."""
    return "" if tool is None else digest((tool.name, tool.description, tool.parameters))


def _with_defaults(tool: AnyTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with which a call runs, as far as the tool's schema tells."""
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    defaults: dict[str, Any] = {
        name: schema["default"]
        for name, schema in properties.items()
        if isinstance(schema, Mapping) and "default" in schema
    }
    return {**defaults, **arguments}


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")  # where 1, 1.0 and true differ


def _holds(rule: Rule, chat: Chat, tool: AnyTool, call: ToolCall) -> bool:
    if rule.tool != call.name or rule.agent != chat.agent_name or rule.arguments is None:
        return False
    if rule.until is not None and chat.runtime.now() >= rule.until:
        return False
    if not rule.tool_digest or rule.tool_digest != seal(tool):
        return False
    return _json(rule.arguments) == _json(_with_defaults(tool, call.arguments))


async def approval_by_rule(chat: Chat, tool: AnyTool | None, call: ToolCall) -> Approve | None:
    """The approval of a call by a remembered rule, if one holds."""
    if tool is None or call.raw is not None:
        return None
    root = chat.root
    rules: Iterable[Rule] = (*rules_in(root.state), *rules_in(root.meta))
    store = root.first_config.store
    if store is not None:
        rules = (*rules, *await list_rules(store))
    rule = next((rule for rule in rules if _holds(rule, chat, tool, call)), None)
    return None if rule is None else Approve(by=rule.by, note=f"by rule {rule.id}")


def check_rule(chat: Chat, request: ApprovalRequest, rule: Rule) -> None:
    """Raise ApprovalError for a rule that cannot be remembered."""
    if rule.tool != request.call.name:
        raise ApprovalError(
            f"approval {request.id!r}: a rule for {rule.tool!r} does not fit a call of "
            f"{request.call.name!r}; use remember=Rule({request.call.name!r})"
        )
    if rule.scope == "always" and chat.root.first_config.store is None:
        raise ApprovalError(
            f"approval {request.id!r}: a rule with scope='always' needs a store; pass store= to "
            "the agent, or use scope='conversation'"
        )


async def remember(
    chat: Chat, tool: AnyTool | None, request: ApprovalRequest, decision: Approve, rule: Rule
) -> None:
    """Keep a rule where its scope says."""
    if tool is None or not request.tool_digest:
        return
    arguments = request.call.arguments if decision.arguments is None else decision.arguments
    if rule.arguments is None:
        rule = rule.replace(arguments=_with_defaults(tool, arguments))
    rule = rule.replace(
        id=chat.runtime.new_id(),
        agent=chat.agent_name,
        tool_digest=request.tool_digest,
        by=decision.by,
        made_at=chat.runtime.now(),
    )
    root = chat.root
    if rule.scope == "always":
        store = root.first_config.store
        assert store is not None
        await add_rule(store, rule)
    else:
        data = root.state if rule.scope == "chat" else root.meta
        data[RULES] = add_to(data, rule)
