"""Check the rules for every request to a model, including the changes of hooks."""

from __future__ import annotations

from hookline import AssistantMessage, ModelRequest, check_history
from hookline.errors import HistoryError


def validate_request(request: ModelRequest) -> None:
    """Check a request against the rules of providers; raises HistoryError with every problem.

    These are the rules. Each call has exactly one result, directly after the message of the call.
    No assistant message is empty. No call contains the raw text of invalid arguments. The offered
    tools have different names.
    """
    problems: list[str] = []
    try:
        check_history(request.messages)
    except HistoryError as exc:
        problems += exc.problems
    for index, message in enumerate(request.messages):
        if isinstance(message, AssistantMessage):
            if not message.parts:
                problems.append(f"message {index}: this assistant message has no content")
            for call in message.tool_calls:
                if call.raw is not None:
                    problems.append(f"message {index}: call {call.id!r} contains its raw arguments")
    names = [tool.name for tool in request.tools]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            problems.append(f"tool {name!r} is offered twice")
    if problems:
        raise HistoryError(problems)
