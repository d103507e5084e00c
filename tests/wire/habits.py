"""Deviations of servers from their documented formats, as changes of events. Pure functions.

Each habit is known from a server in use; tests/providers/_habits.py names the servers. A habit
takes the events of an answer and returns the events, or the bytes, that such a server would send.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any, Final, TypeAlias

Event: TypeAlias = dict[str, Any]
Change: TypeAlias = Callable[[list[Event]], list[Event]]

ERROR: Final[Event] = {"message": "the server broke", "type": "server_error", "code": 500}


def changed(format: str, events: Iterable[Event], habits: Sequence[str]) -> list[Event]:
    """Change the events as a server with these habits would."""
    out = deepcopy(list(events))
    for name in habits:
        if name not in FRAMES:
            out = EVENTS[format][name](out)
    return out


def framed(pieces: list[bytes], habits: Sequence[str]) -> list[bytes]:
    """Change the bytes of the events as a server with these habits would."""
    for name in habits:
        if name in FRAMES:
            pieces = FRAMES[name](pieces)
    return pieces


def habits_of(format: str) -> tuple[str, ...]:
    """The habits of servers with this format; Google's SDK cannot read comments."""
    frames = [name for name in FRAMES if (format, name) != ("google", "comments")]
    return (*EVENTS[format], *frames)


def check_habits(format: str, habits: Sequence[str]) -> None:
    """Raise ValueError for an unknown format, or a habit that its servers do not have."""
    if format not in EVENTS:
        raise ValueError(f"there is no format {format!r}; use one of: {', '.join(EVENTS)}")
    known = habits_of(format)
    for name in habits:
        if name not in known:
            raise ValueError(
                f"there is no habit {name!r} for {format!r}; use one of: {', '.join(known)}"
            )


# ── frames ──────────────────────────────────────────────────────────────────────────────────


def _crlf(pieces: list[bytes]) -> list[bytes]:
    return [piece.replace(b"\n", b"\r\n") for piece in pieces]


def _comments(pieces: list[bytes]) -> list[bytes]:
    return [each for piece in pieces for each in (b": PROCESSING\n\n", piece)]


def _no_done(pieces: list[bytes]) -> list[bytes]:
    return [piece for piece in pieces if b"[DONE]" not in piece]


def _no_names(pieces: list[bytes]) -> list[bytes]:
    return [b"data: " + piece.partition(b"data: ")[2] for piece in pieces]


FRAMES: Final[dict[str, Callable[[list[bytes]], list[bytes]]]] = {
    "crlf": _crlf,
    "comments": _comments,
    "no_done": _no_done,
    "no_names": _no_names,
}
"""Habits of all formats."""


# ── Chat Completions ────────────────────────────────────────────────────────────────────────


def _deltas(events: list[Event]) -> Iterable[Event]:
    for event in events:
        for choice in event.get("choices") or ():
            if isinstance(choice.get("delta"), dict):
                yield choice["delta"]


def _calls(events: list[Event]) -> Iterable[Event]:
    for delta in _deltas(events):
        yield from delta.get("tool_calls") or ()


def _each_call(change: Callable[[Event], None]) -> Change:
    def apply(events: list[Event]) -> list[Event]:
        for call in _calls(events):
            change(call)
        return events

    return apply


def _each_delta(change: Callable[[Event], None]) -> Change:
    def apply(events: list[Event]) -> list[Event]:
        for delta in _deltas(events):
            change(delta)
        return events

    return apply


def _same_id(call: Event) -> None:
    if "id" in call:
        call["id"] = "call_1"


def _odd_id(call: Event) -> None:
    if "id" in call:
        call["id"] = f"functions.{call['function']['name']}:{call['index']}"


def _empty_id(call: Event) -> None:
    if "id" in call:
        call["id"] = ""


def _repeated(events: list[Event]) -> list[Event]:
    """Send id and name in each chunk of a call."""
    first: dict[int, Event] = {}
    for call in _calls(events):
        begun = first.setdefault(call["index"], call)
        call["id"] = begun.get("id")
        call["function"] = {**call["function"], "name": begun["function"].get("name")}
    return events


def _whole_calls(events: list[Event]) -> list[Event]:
    """Send each call in one chunk."""
    first: dict[int, Event] = {}
    for call in _calls(events):
        begun = first.setdefault(call["index"], call)
        if begun is not call:
            begun["function"]["arguments"] += call["function"]["arguments"]
    for delta in _deltas(events):
        if "tool_calls" in delta:
            delta["tool_calls"] = [call for call in delta["tool_calls"] if "id" in call]
    return events


def _object_arguments(events: list[Event]) -> list[Event]:
    for call in _calls(_whole_calls(events)):
        call["function"]["arguments"] = json.loads(call["function"]["arguments"] or "{}")
    return events


def _null_arguments(call: Event) -> None:
    if call["function"].get("arguments") in ("", "{}"):
        call["function"]["arguments"] = None


def _function_call(events: list[Event]) -> list[Event]:
    """Send a call in the older format for functions, from before tools."""
    for delta in _deltas(events):
        for call in delta.pop("tool_calls", ()):
            delta["function_call"] = call["function"]
    return _finished(events, "tool_calls", "function_call")


def _finished(events: list[Event], before: str, after: str) -> list[Event]:
    for event in events:
        for choice in event.get("choices") or ():
            if choice.get("finish_reason") == before:
                choice["finish_reason"] = after
    return events


def _signed_calls(call: Event) -> None:
    if "id" in call:
        call["extra_content"] = {"google": {"thought_signature": "c2lnbmVk"}}


def _prompt_filter(events: list[Event]) -> list[Event]:
    return [{"id": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}, *events]


def _no_delta(events: list[Event]) -> list[Event]:
    return [{"id": "x", "choices": [{"index": 0, "content_filter_results": {}}]}, *events]


def _no_usage(events: list[Event]) -> list[Event]:
    return [event for event in events if event.pop("usage", None) is None or event["choices"]]


def _usage_everywhere(events: list[Event]) -> list[Event]:
    last = next((event["usage"] for event in reversed(events) if event.get("usage")), None)
    for event in events:
        event["usage"] = last
    return events


def _reasoning(delta: Event) -> None:
    if "reasoning_content" in delta:
        delta["reasoning"] = delta.pop("reasoning_content")


def _both_reasonings(delta: Event) -> None:
    if "reasoning_content" in delta:
        delta["reasoning"] = delta["reasoning_content"]


def _reasoning_details(delta: Event) -> None:
    if "reasoning_content" in delta:
        text = delta.pop("reasoning_content")
        delta["reasoning"] = text
        delta["reasoning_details"] = [{"type": "reasoning.text", "text": text, "signature": "s"}]


def _think_tags(events: list[Event]) -> list[Event]:
    """Send reasoning in the text, between tags."""
    thinking = False
    for delta in _deltas(events):
        thought = delta.pop("reasoning_content", None)
        if thought is not None:
            delta["content"] = thought if thinking else f"<think>{thought}"
            thinking = True
        elif thinking and (delta.get("content") or "tool_calls" in delta or not delta):
            delta["content"] = f"</think>{delta.get('content') or ''}"
            thinking = False
    return events


def _content_parts(delta: Event) -> None:
    """Send text and reasoning as parts of the content."""
    thought, text = delta.pop("reasoning_content", None), delta.get("content")
    if thought is not None:
        inner = [{"type": "text", "text": thought}]
        delta["content"] = [{"type": "thinking", "thinking": inner}]
    elif text:
        delta["content"] = [{"type": "text", "text": text}]


def _without_finish(events: list[Event]) -> list[Event]:
    return [e for e in events if not any(c.get("finish_reason") for c in e.get("choices") or ())]


def _breaking(*last: Event) -> Change:
    """Begin the answer, and then report an error of the server."""

    def apply(events: list[Event]) -> list[Event]:
        return [*events[: max(1, len(events) // 2)], *last]

    return apply


def _choice(**fields: Any) -> Event:
    return {"id": "x", "choices": [{"index": 0, "delta": {}, **fields}]}


CHAT: Final[dict[str, Change]] = {
    "no_index": _each_call(lambda call: call.pop("index") and None),
    "one_index": _each_call(lambda call: call.update(index=0)),
    "no_ids": _each_call(lambda call: call.pop("id", None) and None),
    "empty_ids": _each_call(_empty_id),
    "same_ids": _each_call(_same_id),
    "odd_ids": _each_call(_odd_id),
    "repeated_names": _repeated,
    "whole_calls": _whole_calls,
    "object_arguments": _object_arguments,
    "null_arguments": _each_call(_null_arguments),
    "function_call": _function_call,
    "stop_with_calls": lambda events: _finished(events, "tool_calls", "stop"),
    "signed_calls": _each_call(_signed_calls),
    "prompt_filter": _prompt_filter,
    "no_delta": _no_delta,
    "no_usage": _no_usage,
    "usage_everywhere": _usage_everywhere,
    "reasoning": _each_delta(_reasoning),
    "both_reasonings": _each_delta(_both_reasonings),
    "reasoning_details": _each_delta(_reasoning_details),
    "think_tags": _think_tags,
    "content_parts": _each_delta(_content_parts),
    "no_finish": _without_finish,
    "error": _breaking({"error": ERROR}),
    "error_object": _breaking({"object": "error", **ERROR}),
    "error_bare": _breaking({"message": ERROR["message"], "code": 500}),
    "error_text": _breaking({"error": ERROR["message"]}),
    "error_detail": _breaking({"detail": ERROR["message"]}),
    "error_in_choice": _breaking(_choice(error=ERROR)),
    "error_finish": _breaking(_choice(finish_reason="error")),
}


# ── the formats of the providers themselves ─────────────────────────────────────────────────


def _without(*kinds: str) -> Change:
    return lambda events: [event for event in events if event.get("type") not in kinds]


def _unknown(events: list[Event]) -> list[Event]:
    return [each for event in events for each in ({"type": "a_new_event", "index": 0}, event)]


def _whole_input(events: list[Event]) -> list[Event]:
    """Anthropic: send the input of a call at the beginning of its block."""
    texts: dict[int, str] = {}
    out: list[Event] = []
    for event in events:
        delta: Event = event.get("delta") or {}
        if delta.get("type") == "input_json_delta":
            texts[event["index"]] = texts.get(event["index"], "") + delta["partial_json"]
        else:
            out.append(event)
    for event in out:
        block: Event = event.get("content_block") or {}
        if block.get("type") == "tool_use":
            block["input"] = json.loads(texts.get(event["index"]) or "{}")
    return out


def _failed(events: list[Event]) -> list[Event]:
    response = {"id": "resp_wire", "status": "failed", "error": {"code": "server_error", **ERROR}}
    return [*events[:3], {"type": "response.failed", "response": response}]


def _no_call_ids(events: list[Event]) -> list[Event]:
    for event in events:
        for candidate in event.get("candidates") or ():
            for part in candidate["content"]["parts"]:
                part.get("functionCall", {}).pop("id", None)
    return events


def _without_reason(events: list[Event]) -> list[Event]:
    for event in events:
        for candidate in event.get("candidates") or ():
            candidate.pop("finishReason", None)
    return events


def _blocked(events: list[Event]) -> list[Event]:
    return [{"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {}}]


def _malformed_call(events: list[Event]) -> list[Event]:
    content = {"role": "model", "parts": [{"text": ""}]}
    return [{"candidates": [{"content": content, "finishReason": "MALFORMED_FUNCTION_CALL"}]}]


_UNAVAILABLE: Final[Event] = {"code": 503, "message": ERROR["message"], "status": "UNAVAILABLE"}

EVENTS: Final[dict[str, dict[str, Change]]] = {
    "openai-chat": CHAT,
    "openai": {
        "whole_texts": _without("response.output_text.delta"),
        "whole_arguments": _without("response.function_call_arguments.delta"),
        "unknown_events": _unknown,
        "no_finish": _without("response.completed", "response.incomplete"),
        "error": _breaking({**ERROR, "type": "error"}),
        "failed": _failed,
    },
    "anthropic": {
        "whole_input": _whole_input,
        "unknown_events": _unknown,
        "no_finish": _without("message_stop"),
        "error": _breaking(
            {"type": "error", "error": {"type": "overloaded_error", "message": ERROR["message"]}}
        ),
    },
    "google": {
        "no_ids": _no_call_ids,
        "no_finish": _without_reason,
        "blocked": _blocked,
        "malformed_call": _malformed_call,
        "error": _breaking({"error": _UNAVAILABLE}),
    },
}
"""The habits by format."""
