"""A durable chat as stored by an engine: its job and its outcome, as JSON."""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal, Protocol

import msgspec

from hookline import (
    Agent,
    ApprovalRequest,
    Approve,
    Conversation,
    Deny,
    HookDef,
    Limits,
    Message,
    Response,
    Settings,
    Store,
    UserMessage,
)
from hookline.errors import ChatAbortedError, RemoteChatError, UsageError
from hookline.events import ChatAborted, ChatDone, ChatEvent, ChatFailed, ErrorInfo, read_event
from hookline.runtimes import Durable, Journal

logger = logging.getLogger("hookline.durable")
MakeDeps = Callable[[Any], Any]
"""A function that makes `deps` from the JSON data that a chat was started with."""
Decision = Approve | Deny
When = Literal["next", "idle"]
LATE: Final = Deny("the question expired before it was answered")
_decision: Final[msgspec.json.Decoder[Decision]] = msgspec.json.Decoder(Approve | Deny)
read_decision: Final = _decision.decode
read_request: Final = msgspec.json.Decoder(ApprovalRequest).decode


class Screen(Protocol):
    """Receives the events of one life of a chat."""

    @property
    def hooks(self) -> Sequence[HookDef]:
        """Hooks that the chat runs besides its own."""
        ...

    async def put(self, event: ChatEvent, /) -> None:
        """Show an event."""
        ...


class Relay(Protocol):
    """Shows chats in other processes: `hookline.web.relay.RedisRelay`."""

    async def open(self) -> None:
        """Connect. Raises StoreError."""
        ...

    def show(
        self,
        journal: Journal,
        conversation: str,
        messages: Callable[[], Awaitable[Sequence[Message]]],
        /,
    ) -> AbstractAsyncContextManager[Screen]:
        """Show one life of a chat."""
        ...

    async def aclose(self) -> None:
        """Write the remaining entries, and disconnect."""
        ...


def encode_decision(decision: Decision) -> str:
    """Encode a decision as JSON."""
    return msgspec.json.encode(decision).decode()


def check_agent(agent: Agent[Any], relay: Relay | None) -> None:
    """Raise UsageError for an agent without `runtime=Durable()`, or with a relay but no store."""
    if not isinstance(agent.runtime, Durable):
        raise UsageError(
            f"{agent!r} cannot run durable chats: create it with Agent(..., runtime=Durable())"
        )
    if relay is not None and agent.store is None:
        raise UsageError(
            f"{agent!r} has no store, but a relay shows only chats of stored conversations: use "
            "Agent(..., store=…) with the store of the web application"
        )


def check_limits(concurrency: int, max_deaths: int) -> None:
    """Raise UsageError for a worker that would run no chat."""
    if concurrency < 1:
        raise UsageError(
            f"concurrency={concurrency!r} must be at least 1; the worker would run no chat"
        )
    if max_deaths < 1:
        raise UsageError(f"max_deaths={max_deaths!r} must be at least 1")


class Sent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message that a client has sent into a chat, as an engine stores it."""

    message: UserMessage
    when: When
    interrupts: bool = False
    """Whether it cancels running tools first."""


read_sent: Final = msgspec.json.Decoder(Sent).decode


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The input and options of a durable chat."""

    input: str | UserMessage | None = None
    conversation: str | None = None
    deps: Any = None
    settings: Settings | None = None
    limits: Limits | None = None
    system: str | None = None
    model: str | None = None
    hooks: tuple[str, ...] = ()
    release: Literal["live", "response"] = "live"
    agent: str | None = None
    key: str | None = None
    priority: int = 0
    trace: str | None = None
    """The trace context of whoever started the chat."""


class Fields(msgspec.Struct, frozen=True):
    """The part of a job that its engine reads."""

    agent: str | None = None
    conversation: str | None = None
    key: str | None = None
    priority: int = 0
    trace: str | None = None


_job: Final = msgspec.json.Decoder(Job)
_fields: Final = msgspec.json.Decoder(Fields)
_HIGHEST: Final = 2**31 - 1


def fields_of(text: str) -> Fields:
    """Return what an engine reads of a job."""
    try:
        return _fields.decode(text)
    except msgspec.DecodeError:  # its chat fails
        return Fields()


def encode_job(job: Job) -> str:
    """Encode the job as JSON. Raises UsageError for a value of a wrong type, or not JSON."""
    kinds: Mapping[str, tuple[Any, str]] = {
        "input": ((str, UserMessage), "text or a UserMessage"),
        "conversation": (str, "the id of a stored conversation"),
        "settings": (Settings, "Settings"),
        "limits": (Limits, "Limits"),
        "system": (str, "text; set a system function on the agent instead"),
        "model": (str, "the name of a model, such as 'openai:gpt-…'"),
        "agent": (str, "the name of an agent"),
        "key": (str, "text, such as the name of a tenant"),
    }
    for name, (kind, description) in kinds.items():
        value = getattr(job, name)
        if value is not None and not isinstance(value, kind):
            raise UsageError(f"{name}={value!r} of a durable chat must be {description}")
    if job.release not in ("live", "response"):
        raise UsageError(f"release={job.release!r} of a durable chat must be 'live' or 'response'")
    if type(job.priority) is not int or abs(job.priority) > _HIGHEST:
        raise UsageError(f"priority={job.priority!r} of a durable chat must be a whole number")
    if not all(type(hook) is str for hook in job.hooks):
        raise UsageError(
            f"hooks={job.hooks!r} of a durable chat must be ids of hooks that its agent knows"
        )
    try:
        return msgspec.json.encode(job).decode()
    except (TypeError, ValueError) as exc:
        raise UsageError(
            f"the input and deps of a durable chat must be JSON: {exc}; pass JSON data; the "
            "worker's deps=make_deps can convert the deps for hooks and tools"
        ) from exc


async def run_job(
    agent: Agent[Any],
    journal: Journal,
    text: str,
    make_deps: MakeDeps | None,
    relay: Relay | None,
) -> Response[Any]:
    """Run the chat of a job, and show it if there is a relay. Raises UsageError for another
    agent's job.
    """
    job = _job.decode(text)
    if job.agent not in (None, agent.name):
        raise UsageError(
            f"chat {journal.chat_id!r} is for agent {job.agent!r}, but this worker runs agent "
            f"{agent.name!r}; give the workers of each agent a name of their own"
        )
    id = job.conversation
    if id is not None:
        await journal.flush()  # another life might have the same number otherwise
    if relay is None or id is None:
        return await agent.chat(job.input, **await _options(job, journal, make_deps))

    async def messages() -> Sequence[Message]:
        conversation = None if agent.store is None else await agent.store.load(id)
        return () if conversation is None else conversation.messages

    async with relay.show(journal, id, messages) as screen:
        options = await _options(job, journal, make_deps)
        options["hooks"] = [*job.hooks, *screen.hooks]
        async with agent.chat_stream(job.input, **options) as stream:
            async for event in stream:
                await screen.put(event)
        return stream.response


async def replay_job(agent: Agent[Any], journal: Journal, text: str, store: Store | None) -> None:
    """Run the chat of a job with this store, and without making its deps."""
    job = _job.decode(text)
    options = await _options(job, journal, None)
    if job.conversation is not None and store is not None:
        options["conversation"] = Conversation.at(store, job.conversation)
    await agent.chat(job.input, **options)


async def _options(job: Job, journal: Journal, make_deps: MakeDeps | None) -> dict[str, Any]:
    return {
        "conversation": job.conversation,
        "deps": job.deps if make_deps is None else await _make(make_deps, job.deps),
        "settings": job.settings,
        "limits": job.limits,
        "system": job.system,
        "model": job.model,
        "hooks": list(job.hooks) or None,
        "release": job.release,
        "chat_id": journal.chat_id,
    }


async def _make(make_deps: MakeDeps, data: Any) -> Any:
    """Make the deps. Raises UsageError if they raise CancelledError, but are not cancelled."""
    try:
        deps = make_deps(data)
        return await deps if inspect.isawaitable(deps) else deps
    except asyncio.CancelledError as exc:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise UsageError(
            f"deps={make_deps!r} of the worker raised CancelledError, but was not cancelled; "
            "let it end with a result or another exception"
        ) from exc


def encode_outcome(chat_id: str, came_to: Response | Exception) -> str:
    """Encode the outcome of a chat, as the JSON of its last event."""
    event: ChatDone | ChatAborted | ChatFailed
    if isinstance(came_to, Response):
        event = ChatDone(chat_id=chat_id, response=came_to)
    elif isinstance(came_to, ChatAbortedError):
        event = ChatAborted(chat_id=chat_id, reason=came_to.reason, partial=came_to.partial)
    elif isinstance(came_to, RemoteChatError) and came_to.chat_id == chat_id:  # of the engine
        error = ErrorInfo(type=came_to.type, message=came_to.message)
        event = ChatFailed(chat_id=chat_id, error=error)
    else:
        event = ChatFailed(chat_id=chat_id, error=ErrorInfo.of(came_to))
    return event.to_json().decode()


def log_end(chat_id: str, came_to: Response | Exception) -> None:
    """Log how a chat ended: for a failure, with the traceback."""
    if isinstance(came_to, (Response, ChatAbortedError)):
        state = "done" if isinstance(came_to, Response) else "aborted"
        logger.info("durable chat %s ended: %s", chat_id, state)
        return
    places = _places_in(came_to)
    logger.error("durable chat %s failed; its timeline has the error:\n%s", chat_id, places)
    logger.debug("durable chat %s failed", chat_id, exc_info=came_to)


def _places_in(exc: BaseException | None) -> str:
    """Return the traceback without the texts of exceptions, which may quote a message."""
    lines: list[str] = []
    while exc is not None:
        lines += [type(exc).__name__, *traceback.format_tb(exc.__traceback__)]
        exc = exc.__cause__
    return "\n".join(line.rstrip() for line in lines)


def failure_of(outcome: str) -> str:
    """Return the error of a chat that failed or is quarantined; empty for another outcome."""
    event = read_event(outcome)
    return f"{event.error.type}: {event.error.message}" if isinstance(event, ChatFailed) else ""


def aborted_outcome(chat_id: str, reason: str | None) -> str:
    """Encode the outcome of a chat that was aborted while no life held it."""
    return encode_outcome(chat_id, ChatAbortedError(reason))


def read_outcome(text: str) -> Response:
    """Decode the response; raises ChatAbortedError, or RemoteChatError if the chat failed."""
    event = read_event(text)
    if isinstance(event, ChatDone):
        return event.response
    if isinstance(event, ChatAborted):
        raise ChatAbortedError(event.reason, event.partial)
    assert isinstance(event, ChatFailed)
    raise RemoteChatError(event.chat_id, event.error.type, event.error.message)
