"""Questions for the user of a client: their text, their form, and the answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from hookline import ApprovalRequest, Approve, Deny, Run
from hookline.events import strict

Decision: TypeAlias = Approve | Deny
APPROVAL: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"approve": {"type": "boolean", "title": "Approve", "default": False}},
    "required": ["approve"],
}


def answers_of(params: Any) -> dict[str, Decision] | None:
    """Return the answers that a request brings; None if it brings none."""
    responses = params.input_responses
    if not responses:
        return None
    return {id: decision_of(response) for id, response in responses.items()}


def decision_of(response: Any, *, form: bool = False) -> Decision:
    """Read the client's answer: an approval only if its user said so, otherwise a denial."""
    content: Mapping[str, Any] = getattr(response, "content", None) or {}
    if getattr(response, "action", None) != "accept":
        return Deny("the user declined")
    if form:
        return Approve(arguments=dict(content))
    return Approve() if content.get("approve") is True else Deny("the user did not approve")


def nobody(request: ApprovalRequest, run: Run[Any]) -> Decision:
    """Deny a call, as the approver of a client that cannot ask its user."""
    return Deny("the client cannot ask its user")


def question_text(request: ApprovalRequest) -> str:
    """Return the question for the client's user, with its details and the complete call."""
    lines = [strict(line) for prompt in request.prompts for line in prompt.split("\n")]
    for data in filter(None, request.details):
        text = data.get("text") if data.get("kind") == "diff" else None
        lines += map(strict, str(text or json.dumps(data, ensure_ascii=False)).strip().split("\n"))
    if request.schema is None:
        arguments = json.dumps(request.call.arguments, ensure_ascii=False)
        lines.append(f"{request.call.name} {strict(arguments)}")
    return "\n".join(lines)
