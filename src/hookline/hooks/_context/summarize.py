"""`summarize`: replace old messages in requests with a summary; the stored history stays complete.

The summary is stored in `run.meta`, with the id of the last message that it covers and a digest of
all of them, so that an update, a reset or a fork invalidates it. It changes only when the threshold
is passed again, so that a provider's prompt cache stays effective. A call is never separated from
its results: the kept messages begin with a user message, or at least with an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from hookline import (
    Agent,
    AssistantMessage,
    Message,
    Model,
    ModelRequest,
    Run,
    Text,
    ToolMessage,
    UserMessage,
    define_hook,
)
from hookline.errors import UsageError
from hookline.hooks._common import Hooks
from hookline.hooks._context.window import Count, rough_tokens
from hookline.points import PreRequest

KEY: Final = "hookline.summary"
PROMPT: Final = (
    "Summarize this conversation for the assistant that goes on with it. Keep names, numbers, "
    "decisions, open questions and what tools have returned. Write nothing else."
)
When = int | Callable[[Sequence[Message]], bool]
"""A number of tokens, or a function of the messages that says whether to summarize."""
_logger = logging.getLogger("hookline.hooks")


class Summary(msgspec.Struct, frozen=True):
    """The text that replaces the first messages of a conversation."""

    upto: str
    digest: str
    text: str


def summarize(
    when: When,
    *,
    keep: int = 6,
    by: Agent[Any] | Model | None = None,
    prompt: str = PROMPT,
    count: Count = rough_tokens,
    inherit: bool = False,
    required: bool = False,
) -> Hooks:
    """If a request's messages have more than `when` tokens, replace the oldest messages with a
    summary.

    `when` may also be a function of the messages. At least the last `keep` messages stay unchanged.
    Messages of less than half of `when` tokens are not replaced, so that the start of
    requests, which providers cache, changes rarely.
    `by` is the agent or model that writes the summary; by default, it is the chat's model. `count`
    returns the number of tokens of a message. The tokens of the summary's model call count as
    tokens of the chat. Raises UsageError for numbers below 1.
    """
    if keep < 1 or (isinstance(when, int) and when < 1):
        raise UsageError(f"summarize({when!r}, keep={keep!r}): both must be at least 1")

    def due(messages: Sequence[Message]) -> bool:
        return sum(map(count, messages)) > when if isinstance(when, int) else when(messages)

    def pays(messages: Sequence[Message]) -> bool:
        """Whether a summary of these is worth it; else a large tail would cause one each step."""
        return not isinstance(when, int) or sum(map(count, messages)) * 2 >= when

    async def check(ctx: PreRequest[Any]) -> ModelRequest | None:
        whole = ctx.request.messages
        summary, start = _standing(ctx.run.meta.get(KEY), whole)
        short = _with(summary, whole, start)
        cut = _cut(whole, keep) if due(short) else 0
        if cut > start and pays(whole[start:cut]):
            agent = _agent(by, ctx.request.model, prompt)
            text = await _summary(agent, ctx.run, summary, whole[start:cut])
            if text is not None:
                summary, start = Summary(whole[cut - 1].id, _digest(whole[:cut]), text), cut
                ctx.run.meta[KEY] = msgspec.to_builtins(summary)
                short = _with(summary, whole, start)
        return ctx.request.replace(messages=tuple(short)) if start else None

    return (define_hook("preRequest", check, name="summarize", inherit=inherit, required=required),)


def _agent(by: Agent[Any] | Model | None, model: Model, prompt: str) -> Agent[Any]:
    return by if isinstance(by, Agent) else Agent(by or model, name="summarize", system=prompt)


async def _summary(
    agent: Agent[Any], run: Run[Any], summary: Summary | None, messages: Sequence[Message]
) -> str | None:
    """Summarize these messages and the previous summary; None if that fails."""
    before = [] if summary is None else [f"summary of what was before: {summary.text}"]
    try:
        response = await agent.chat("\n\n".join([*before, *map(_line, messages)]), deps=run.deps)
    except Exception as exc:
        _logger.warning("a summary failed (%s): the whole history is sent", type(exc).__name__)
        return None
    Run.chat_of(run).add_usage(response.usage)
    if response.stop_reason is not None or not response.text.strip():
        _logger.warning("a summary has no text: the whole history is sent")
        return None
    data = {"messages": len(messages), "tokens": response.usage.total_tokens}
    await run.status("summarized", data)
    return response.text


def _line(message: Message) -> str:
    """A message as text for the summarizer."""
    if isinstance(message, ToolMessage):
        return f"tool {message.name}: {message.text}"
    calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
    texts = [f"calls {call.name}({msgspec.json.encode(call.arguments).decode()})" for call in calls]
    return "\n".join([f"{message.role}: {message.text}", *texts])


def _standing(data: Any, messages: Sequence[Message]) -> tuple[Summary | None, int]:
    """The stored summary and the number of messages that it covers, if it is still valid."""
    if data is None:
        return None, 0
    summary = msgspec.convert(data, Summary)
    for place, message in enumerate(messages):
        if message.id == summary.upto:
            prefix = messages[: place + 1]
            return (summary, place + 1) if _digest(prefix) == summary.digest else (None, 0)
    return None, 0


def _digest(messages: Sequence[Message]) -> str:
    return sha256(b"\n".join(message.to_json() for message in messages)).hexdigest()


def _cut(messages: Sequence[Message], keep: int) -> int:
    """The number of messages that can be replaced without separating calls from results."""
    last = len(messages) - keep
    for kinds in (UserMessage, (UserMessage, AssistantMessage)):
        for place in range(last, 0, -1):
            if isinstance(messages[place], kinds):
                return place
    return 0


def _with(summary: Summary | None, messages: Sequence[Message], start: int) -> Sequence[Message]:
    if summary is None:
        return messages
    text = f"Summary of the conversation so far:\n{summary.text}"
    first = messages[start]
    if isinstance(first, UserMessage):
        return [first.replace(text=f"{text}\n\n{first.text}"), *messages[start + 1 :]]
    return [UserMessage(parts=(Text(text),)), *messages[start:]]
