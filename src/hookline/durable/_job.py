"""A durable chat as an engine keeps it: what it was asked for, and what it came to, as JSON."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from hookline import Agent, Limits, Response, Settings, UserMessage
from hookline.errors import ChatAbortedError, RemoteChatError, UsageError
from hookline.events import ChatAborted, ChatDone, ChatFailed, ErrorInfo, read_event

MakeDeps = Callable[[Any], Any]


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a durable chat was asked for."""

    input: str | UserMessage | None = None
    conversation: str | None = None
    deps: Any = None
    settings: Settings | None = None
    limits: Limits | None = None
    system: str | None = None
    model: str | None = None
    hooks: tuple[str, ...] = ()


_job: Final = msgspec.json.Decoder(Job)


def encode_job(job: Job) -> str:
    """The job as JSON. Raises UsageError that names what is no JSON, or of another type."""
    kinds: Mapping[str, tuple[Any, str]] = {
        "input": ((str, UserMessage), "text or a UserMessage"),
        "conversation": (str, "the id of a stored conversation"),
        "settings": (Settings, "Settings"),
        "limits": (Limits, "Limits"),
        "system": (str, "text: a function stays with the agent"),
        "model": (str, "the name of a model, such as 'openai:gpt-…'"),
    }
    for name, (kind, wanted) in kinds.items():
        value = getattr(job, name)
        if value is not None and not isinstance(value, kind):
            raise UsageError(f"{name}={value!r} of a durable chat must be {wanted}")
    if not all(type(each) is str for each in job.hooks):
        raise UsageError(
            f"hooks={job.hooks!r} of a durable chat must be ids of hooks that its agent knows"
        )
    try:
        return msgspec.json.encode(job).decode()
    except (TypeError, ValueError) as exc:
        raise UsageError(
            f"the input and deps of a durable chat must be JSON: {exc}; deps=make_deps of the "
            "worker makes of it what hooks and tools get"
        ) from exc


async def run_job(agent: Agent[Any], chat_id: str, text: str, make_deps: MakeDeps | None) -> Any:
    """Run the chat of a job."""
    job = _job.decode(text)
    deps = job.deps if make_deps is None else make_deps(job.deps)
    if inspect.isawaitable(deps):
        deps = await deps
    return await agent.chat(
        job.input,
        conversation=job.conversation,
        deps=deps,
        settings=job.settings,
        limits=job.limits,
        system=job.system,
        model=job.model,
        hooks=list(job.hooks) or None,
        chat_id=chat_id,
    )


def encode_outcome(chat_id: str, came_to: Response | Exception) -> str:
    """What a chat came to, as the JSON of its last event."""
    event: ChatDone | ChatAborted | ChatFailed
    if isinstance(came_to, Response):
        event = ChatDone(chat_id=chat_id, response=came_to)
    elif isinstance(came_to, ChatAbortedError):
        event = ChatAborted(chat_id=chat_id, reason=came_to.reason, partial=came_to.partial)
    else:
        event = ChatFailed(chat_id=chat_id, error=ErrorInfo.of(came_to))
    return event.to_json().decode()


def read_outcome(text: str) -> Response:
    """The response; raises ChatAbortedError, or RemoteChatError where the chat has failed."""
    event = read_event(text)
    if isinstance(event, ChatDone):
        return event.response
    if isinstance(event, ChatAborted):
        raise ChatAbortedError(event.reason, event.partial)
    assert isinstance(event, ChatFailed)
    raise RemoteChatError(event.chat_id, event.error.type, event.error.message)
