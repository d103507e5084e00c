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
    Conversation,
    Limits,
    Message,
    Model,
    ModelRequest,
    Response,
    Run,
    ToolMessage,
    UserMessage,
    define_hook,
)
from hookline.errors import UsageError
from hookline.hooks._common import Hooks
from hookline.hooks._context.window import Count, rough_tokens, with_summary
from hookline.models import model_name
from hookline.points import Compaction, Guide, PreRequest

KEY: Final = "hookline.summary"
PROMPT: Final = (
    "Summarize this conversation for the assistant that goes on with it. Keep names, numbers, "
    "decisions, open questions and what tools have returned. Write nothing else, and call no tool."
)
When = int | Callable[[Sequence[Message]], bool]
"""A number of tokens, or a function of the messages that says whether to summarize."""
NAME: Final = "summarize"
NO_TOOL: Final = "Write the summary as text, and call no tool."
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
    `by` is the agent or model that writes the summary. By default, the chat's model writes it, in a
    request that begins like the one before, so that the provider's prompt cache applies. `count`
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
        short = with_summary(None if summary is None else summary.text, whole[start:])
        cut = _cut(whole, keep) if due(short) else 0
        if cut > start and pays(whole[start:cut]):
            compaction = await ctx.run.compact(NAME, short, Compaction(len(whole) - cut))
            cut = 0 if compaction is None else _cut(whole, compaction.keep)
            if compaction is not None and cut > start:
                text = compaction.text
                if text is None:
                    head = short[: len(short) - len(whole) + cut]
                    text = await _summary(ctx.run, ctx.request.replace(messages=head), by, prompt)
                if text is not None:
                    summary, start = Summary(whole[cut - 1].id, _digest(whole[:cut]), text), cut
                    ctx.run.meta[KEY] = msgspec.to_builtins(summary)
                    short = with_summary(text, whole[start:])
        return ctx.request.replace(messages=short) if start else None

    return (define_hook("preRequest", check, name=NAME, inherit=inherit, required=required),)


async def _summary(
    run: Run[Any], request: ModelRequest, by: Agent[Any] | Model | None, prompt: str
) -> str | None:
    """Summarize the messages of this request; None if that fails."""
    model = request.model
    try:
        if by is None:
            response = await _continued(run, request, prompt)
        else:
            agent = by if isinstance(by, Agent) else Agent(by, name=NAME, system=prompt)
            model = agent.model
            response = await agent.chat("\n\n".join(map(_line, request.messages)), deps=run.deps)
    except Exception as exc:
        _logger.warning("a summary failed (%s): the whole history is sent", type(exc).__name__)
        return None
    Run.chat_of(run).add_usage(response.usage)
    if response.stop_reason is not None or not response.text.strip():
        _logger.warning("a summary has no text: the whole history is sent")
        return None
    usage = response.usage
    data = {"messages": len(request.messages), "tokens": usage.total_tokens}
    more = {"model": model_name(model), "usage": msgspec.to_builtins(usage)}
    await run.status("summarized", {**data, **more})
    return response.text


async def _continued(run: Run[Any], request: ModelRequest, prompt: str) -> Response:
    """Let the chat's own model go on with this request, so that its prompt cache applies."""
    agent: Agent[Any] = Agent(
        request.model,
        name=NAME,
        system=request.system,
        tools=request.tools,
        settings=request.settings.replace(tool_choice=None),
        limits=Limits(steps=2),
    )
    agent.add_hook("onResponse", lambda ctx: Guide(NO_TOOL) if ctx.response.tool_calls else None)
    talk = Conversation(request.messages)
    return await agent.chat(prompt, conversation=talk, deps=run.deps)


def _line(message: Message) -> str:
    """A message as text for the summarizer."""
    if isinstance(message, ToolMessage):
        return f"tool {message.name}: {message.text}"
    calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
    texts = [f"calls {call.name}({msgspec.json.encode(call.arguments).decode()})" for call in calls]
    return "\n".join([f"{message.role}: {message.text}", *texts])


def _standing(data: Any, messages: Sequence[Message]) -> tuple[Summary | None, int]:
    """The stored summary and the number of messages that it covers, if it is still valid.

    It is not valid for a history that now ends with the last message that it covers.
    """
    if data is None:
        return None, 0
    summary = msgspec.convert(data, Summary)
    for place, message in enumerate(messages[:-1]):
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
