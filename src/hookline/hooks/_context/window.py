"""`window` and `truncate`: keep the model's input short.

A window applies only to requests; the stored history stays complete. It never separates a call from
its result, because it counts in groups: a user message, or an answer with the results of its calls.
`truncate` shortens single results as they arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from hookline import (
    Message,
    ModelRequest,
    Text,
    ToolFailure,
    ToolMessage,
    ToolResult,
    UserMessage,
    define_hook,
)
from hookline.errors import UsageError
from hookline.hooks._common import Hooks, definer, tool_names
from hookline.points import Compaction, OnToolCallError, OnToolCallResult, PreRequest, check_number

NAME: Final = "window"
Count = Callable[[Message], int]
"""A function that returns the number of tokens of a message."""


def rough_tokens(message: Message) -> int:
    """Estimate the number of tokens of a message: a quarter of the size of its JSON in bytes."""
    bare = message.replace(chat_id=None, at=None)  # which no model reads
    return len(bare.to_json()) // 4 + 1


def window(
    messages: int | None = None,
    *,
    keep: int | None = None,
    tokens: int | None = None,
    count: Count = rough_tokens,
    inherit: bool = False,
    required: bool = False,
) -> Hooks:
    """Send the model only the last messages, up to a number of messages or tokens.

    The window grows to the limit and is then cut to `keep` messages or tokens, by default a quarter
    of the limit. Most requests therefore begin like the one before, and the provider's prompt cache
    applies. A request always begins with a user message. If the window begins with an answer, the
    user message before that answer is added. The last group of messages is always sent, even if it
    is too large. `count` returns the number of tokens of a message. Raises UsageError if neither
    `messages` nor `tokens` is given, or if `keep` is not between 1 and the limit, or is used with
    both.
    """
    if messages is None and tokens is None:
        raise UsageError("window() needs messages= or tokens=")
    limit = messages if tokens is None else tokens if messages is None else 0
    if keep is not None and not 1 <= keep <= (limit or 0):
        raise UsageError(
            f"window({messages!r}, tokens={tokens!r}, keep={keep!r}): use one of messages= and "
            "tokens=, and a keep= from 1 to this limit"
        )

    def low(high: int | None) -> int | None:
        """What a cut leaves of this limit."""
        return None if high is None else keep or max(high // 4, 1)

    marks = Marks(messages, tokens, low(messages), low(tokens), count)

    async def check(ctx: PreRequest[Any]) -> ModelRequest | None:
        whole = ctx.request.messages
        tail = _since_cut(whole, marks)
        if tail is None:
            return None
        compaction = await ctx.run.compact(NAME, whole, Compaction(len(tail)))
        if compaction is None:
            return None
        if compaction.keep != len(tail):
            tail = _last(whole, compaction.keep, None, count) or tuple(whole)
        return ctx.request.replace(messages=with_summary(compaction.text, tail))

    return (define_hook("preRequest", check, name=NAME, inherit=inherit, required=required),)


class Marks(NamedTuple):
    """The size at which a window is cut, and the size after the cut."""

    messages: int | None
    tokens: int | None
    low_messages: int | None
    low_tokens: int | None
    tokens_of: Count


def _since_cut(messages: Sequence[Message], marks: Marks) -> tuple[Message, ...] | None:
    """The messages since the last cut; the cuts follow from the history, so none is remembered."""
    window: list[Message] = []
    size = 0
    for index, message in enumerate(messages):
        window.append(message)
        size += 0 if marks.tokens is None else marks.tokens_of(message)
        if index + 1 < len(messages) and isinstance(messages[index + 1], ToolMessage):
            continue  # a cut is between groups
        if (marks.messages is not None and len(window) > marks.messages) or (
            marks.tokens is not None and size > marks.tokens
        ):
            window = list(
                _last(window, marks.low_messages, marks.low_tokens, marks.tokens_of) or window
            )
            size = 0 if marks.tokens is None else sum(map(marks.tokens_of, window))
    return tuple(window) if len(window) < len(messages) else None


def _last(
    messages: Sequence[Message], most: int | None, tokens: int | None, count: Count
) -> tuple[Message, ...] | None:
    """The last messages, as many whole groups as fit; None if all messages fit."""
    end = begin = question = len(messages)  # `question`: the user message that the group answers
    cost = 0
    pinned: Sequence[Message] = ()
    while end:
        start = end - 1
        while start and isinstance(messages[start], ToolMessage):
            start -= 1
        while question > start or (
            question >= 0 and not isinstance(messages[question], UserMessage)
        ):
            question -= 1
        pin = messages[question : question + 1] if 0 <= question < start else ()
        room = most is None or len(messages) - start + len(pin) <= most
        if tokens is not None:
            cost += sum(map(count, messages[start:end]))
            room = room and cost + sum(map(count, pin)) <= tokens
        if not room and begin < len(messages):
            break
        begin, pinned, end = start, pin, start
    return (*pinned, *messages[begin:]) if begin > len(pinned) else None


def with_summary(text: str | None, messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages, with this text in place of those before them."""
    if text is None:
        return tuple(messages)
    text = f"Summary of the conversation so far:\n{text}"
    first = messages[0]
    if isinstance(first, UserMessage):
        return (first.replace(text=f"{text}\n\n{first.text}"), *messages[1:])
    return (UserMessage(parts=(Text(text),)), *messages)


def truncate(
    limit: int = 10_000,
    *,
    tail: int = 0,
    tools: Iterable[str] | None = None,
    inherit: bool = True,
    required: bool = False,
) -> Hooks:
    """Shorten the results of tool calls to `limit` characters. The last `tail` characters are kept.

    A value that is not text is shortened as JSON. With `tools`, only the results of these tools are
    shortened. Raises UsageError if `tail` is more than `limit`.
    """
    check_number("limit", limit, whole=True)
    check_number("tail", tail, whole=True)
    if tail > limit:
        raise UsageError(f"truncate({limit!r}, tail={tail!r}): tail must be at most limit")

    def cut(text: str) -> str:
        excess = len(text) - limit
        if excess <= 0:
            return text
        end = text[len(text) - tail :]
        return f"{text[: limit - tail]}\n[{excess} characters left out]\n{end}".rstrip("\n")

    def result(ctx: OnToolCallResult[Any]) -> ToolResult | None:
        value = ctx.result.value
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if len(text) <= limit:
            return None
        return ctx.result.replace(value=cut(text), truncated=True)

    def error(ctx: OnToolCallError[Any]) -> ToolFailure:
        return ctx.error.replace(message=cut(ctx.error.message))

    only = tool_names(tools)
    add = definer(name="truncate", inherit=inherit, required=required)
    return (
        add("onToolCallResult", result, tools=only),
        add("onToolCallError", error, tools=only),
    )
