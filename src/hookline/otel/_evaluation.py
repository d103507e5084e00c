"""`record_evaluation`: record a rating of an answer, as an event below the chat's span."""

from __future__ import annotations

from typing import Any

from hookline import Response
from hookline.errors import UsageError
from hookline.otel._conventions import names
from hookline.otel._telemetry import DEFAULT, Telemetry, emitter_of


def record_evaluation(
    response: Response[Any],
    name: str,
    *,
    score: float | None = None,
    label: str | None = None,
    explanation: str | None = None,
    telemetry: Telemetry = DEFAULT,
) -> bool:
    """Record the quality of a chat's answer, as an event `gen_ai.evaluation.result`.

    The event belongs to the span of that chat. The chat may have ended: hookline remembers the last
    1,024 chats. `telemetry` is the agent's own Telemetry, if the agent has one. Returns whether the
    events of that chat are exported. Raises UsageError if none of `score`, `label` and
    `explanation` is given.
    """
    if score is None and label is None and explanation is None:
        raise UsageError("record_evaluation() needs score=, label= or explanation=")
    emitter = emitter_of(telemetry)
    context = None if emitter is None else emitter.ended_chats.get(response.chat_id)
    if emitter is None or context is None:
        return False
    values = {
        names.EVALUATION_NAME: name,
        names.EVALUATION_SCORE: score,
        names.EVALUATION_LABEL: None if label is None else emitter.content.word(label),
        names.EVALUATION_WHY: None if explanation is None else emitter.content.text(explanation),
        names.CHAT_ID: response.chat_id,
    }
    attributes = {key: value for key, value in values.items() if value is not None}
    emitter.events.emit(names.EVALUATION_EVENT, "INFO", attributes, context)
    return True
