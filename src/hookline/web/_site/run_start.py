"""Begin a run for a request: a message, answers to approvals, or a repeated question.

Answers to approvals may also come from outside the chat's own request; such a run has no reader at
first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from secrets import token_hex
from typing import Any, Final, Literal, TypeAlias, TypedDict, Unpack

import msgspec

from hookline import (
    Agent,
    ApprovalRequest,
    Approve,
    ChatStream,
    Conversation,
    Deny,
    Limits,
    Model,
    Run,
    Runtime,
    Settings,
    Tool,
    ToolFailure,
    ToolResult,
    UserMessage,
)
from hookline.errors import (
    ConversationBusyError,
    HistoryError,
    ToolDefinitionError,
    UsageError,
)
from hookline.web._http.request_reply import Refused
from hookline.web._protocols.ag_ui.state import AgUiState, share
from hookline.web._protocols.ai_sdk.encoder import AiSdkVersion
from hookline.web._protocols.incoming import Incoming, object_of, text_of
from hookline.web._protocols.table import Protocol, last_calls, release_for
from hookline.web._runs.registry import Runs, busy
from hookline.web._runs.run import Live
from hookline.web._runs.run_header import Header

Deps: TypeAlias = Callable[[Any, str], Any]
"""Returns a chat's `deps`, or an awaitable of them, for an ASGI scope and a principal."""
ChatHooks: TypeAlias = Callable[[Any, str], Any]
"""Returns a chat's `hooks`, or an awaitable of them, for an ASGI scope and a principal."""
OnDisconnect: TypeAlias = Literal["cancel", "detach"]
"""What happens to a run when its client leaves."""
OnBusy: TypeAlias = Literal["refuse", "queue"]
"""What happens to a message that arrives while an answer runs."""
Options: TypeAlias = dict[str, Any]
ClientTools: TypeAlias = bool | Collection[str]
"""Whether a front end may define tools, or the names that it may use."""
FRONT_END_TOOLS: Final = 64
"""The most tools that a front end may bring along."""
Hooks: TypeAlias = Mapping[Any, Any] | Sequence[Any] | None
Approver: TypeAlias = Callable[
    [ApprovalRequest, Run[Any]], Approve | Deny | Awaitable[Approve | Deny]
]
SystemText: TypeAlias = str | Callable[[Run[Any]], str | Awaitable[str | None] | None] | None


class RouteOptions(TypedDict, total=False):
    """The keywords of `chat_stream`, except `conversation` and `system`."""

    deps: Any
    state: dict[str, Any] | None
    hooks: Hooks
    only_hooks: Hooks
    model: Model | str | None
    tools: Iterable[Tool[..., Any] | Callable[..., Any]] | None
    settings: Settings | None
    limits: Limits | None
    approver: Approver | None
    output: Any
    output_retries: int | None
    output_validators: Iterable[Callable[..., Any]] | None
    release: Literal["live", "response"]
    runtime: Runtime | None
    chat_id: str | None


class ChatOptions(RouteOptions, total=False):
    """The keywords of `resume_stream`, except `conversation`."""

    system: SystemText


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """The options shared by all chats of a route."""

    agent: Any  # Agent: the type of its deps is up to the caller
    runs: Runs
    on_disconnect: OnDisconnect = "cancel"
    ai_sdk_version: AiSdkVersion = 6
    edits: bool = True
    """Whether an approval may change the arguments."""
    client_tools: ClientTools = ()
    """The names of the tools that a front end may bring along; True: any."""
    ag_ui_state: AgUiState | None = None
    """The keys of `run.state` that an AG-UI front end shares."""
    ag_ui_context: bool = False
    """Whether the context of an AG-UI front end is added to the prompt."""


def check_answers(incoming: Incoming, *, approvals: bool) -> None:
    """Refuse answers to approvals, unless `approvals` is True."""
    if incoming.answers and not approvals:
        raise Refused(403, "You cannot answer approvals here; wait for the decision.")


def begin(
    opening: Opening,
    protocol: Protocol,
    incoming: Incoming,
    *,
    key: str,
    principal: str,
    conversation: Conversation | None,
    options: Options,
    run: str = "",
    conversation_id: str | None = None,
) -> Live:
    """Begin the run that a request asks for. Raises Refused, with nothing changed.

    Without a conversation, the client's history is used for this one chat, and every call that asks
    for an approval is denied: there is no stored question to check the answer against.
    """
    opening.runs.check(key, principal)
    agent: Agent[Any] = opening.agent
    options = {"release": release_for(agent, protocol, opening.ai_sdk_version), **options}
    client_tools = front_end_tools(agent, incoming.tools, opening.client_tools)
    if client_tools:
        options["tools"] = [*options.get("tools", ()), *client_tools]
    if protocol == "ag-ui":
        options = share(options, incoming, opening.ag_ui_state, context=opening.ag_ui_context)
    denied: tuple[str, ...] = ()
    if conversation is None:
        before, stream = _of_client(agent, incoming, options)
    else:
        if conversation.busy:
            raise busy()
        before, denied, stream = _of_server(opening, incoming, conversation, principal, options)
    calls = {call.id for call in last_calls(before)}
    header = Header(
        run=run or token_hex(6),
        chat_id=stream.chat_id,
        principal=principal,
        before=len(before),
        resumed=bool(incoming.answers or incoming.results),
        denied=denied,
        client_results=tuple([id for id in incoming.results if id in calls]),
        message_id=incoming.message_id,
        conversation_id=conversation_id,
        run_id=incoming.run_id,
        modern=incoming.modern,
        client_messages=incoming.client_messages,
    )
    detached = opening.on_disconnect == "detach"
    scope_of = partial(scope_of_agent, agent)
    return opening.runs.begin(
        key, stream, header, detached=detached, before=before, scope_of=scope_of
    )


def scope_of_agent(agent: Agent[Any], tool: str) -> str | None:
    """Return the label of a tool's scope."""
    entry = agent.scopes.find(tool)
    return None if entry is None else entry[1].label


def _of_client(
    agent: Agent[Any], incoming: Incoming, options: Options
) -> tuple[tuple[Any, ...], ChatStream]:
    if incoming.answers:
        raise Refused(409, "This approval is not waiting for an answer; load the messages again.")
    history, message = incoming.history, incoming.message
    if message is None and not incoming.results:  # regenerate: the history ends with the question
        last = history[-1] if history else None
        if not isinstance(last, UserMessage):
            raise Refused(400, "To regenerate an answer, send the history up to its user message.")
        history, message = history[:-1], last
    try:
        conversation = Conversation(history)
    except HistoryError:
        raise Refused(
            400, "The history must be valid; let the server keep it, or start a new conversation."
        ) from None
    options = {"approver": _nobody, **options}
    return tuple(history), agent.chat_stream(message, conversation=conversation, **options)


def front_end_tools(
    agent: Agent[Any], definitions: tuple[dict[str, Any], ...], permission: ClientTools
) -> list[Tool[..., Any]]:
    """Return the tools of a front end that `client_tools` allows; leave out the rest.

    Raises Refused for a tool with the name of a server tool, and for an invalid tool. The schema is
    for the model only: the client that wrote it checks the arguments.
    """
    tools: list[Tool[..., Any]] = []
    if len(definitions) > FRONT_END_TOOLS:
        raise Refused(400, f"Send at most {FRONT_END_TOOLS} tools.")
    for definition in definitions:
        name = text_of(definition.get("name"), "The name of a tool")
        ours = agent.scopes.find(name)
        if ours is not None and ours[0].client:
            continue  # the server has declared this tool
        if ours is not None:
            raise Refused(400, f"The server already has a tool {name[:64]!r}; rename your tool.")
        if permission is True or (permission is not False and name in permission):
            tools.append(_tool(name, definition))
    return tools


def _tool(name: str, definition: dict[str, Any]) -> Tool[..., Any]:
    schema = definition.get("parameters", {"type": "object", "properties": {}})
    description = text_of(definition.get("description") or name, "The description of a tool")
    try:
        return Tool.from_schema(
            name,
            description,
            object_of(schema, "The parameters of a tool"),
            client=True,
            validate=False,
        )
    except ToolDefinitionError:
        raise Refused(400, f"The tool {name[:64]!r} must have a valid name and schema.") from None


def denied_calls(conversation: Conversation, answers: Mapping[str, object]) -> tuple[str, ...]:
    """Return the calls that the user denies with these answers."""
    pending = conversation.pending
    return tuple([item.call.id for item in pending if isinstance(answers.get(item.id), Deny)])


def _nobody(request: ApprovalRequest, run: Run[Any]) -> Deny:
    return Deny("approvals need a conversation that the server stores")


def _of_server(
    opening: Opening,
    incoming: Incoming,
    conversation: Conversation,
    principal: str,
    options: Options,
) -> tuple[tuple[Any, ...], tuple[str, ...], ChatStream]:
    """Return the messages before the run, the calls that the user denies, and the chat."""
    agent: Agent[Any] = opening.agent
    before = conversation.messages
    if incoming.answers or incoming.results:
        decisions = incoming.decisions(conversation.pending, by=principal, edits=opening.edits)
        client_ids = {call.id for call in conversation.client_calls}
        results = {id: item for id, item in incoming.results.items() if id in client_ids}
        if not decisions and not results:
            raise Refused(409, "This call is not waiting for a result; load the messages again.")
        denied = denied_calls(conversation, decisions)
        stream = agent.resume_stream(conversation, {**decisions, **results}, **options)
        return before, denied, stream
    message = incoming.message
    if incoming.regenerate:
        message = _replace_answer(conversation, incoming.message_id)
        before = before[: before.index(message)]
    assert message is not None
    if message.id and any(item.id == message.id for item in before):
        raise Refused(409, "This message was already sent; load its answer instead.")
    return before, (), agent.chat_stream(message, conversation=conversation, **options)


def _replace_answer(conversation: Conversation, message_id: str | None) -> UserMessage:
    """Let the chat replace an answer; returns the question that it answers again."""
    try:
        return conversation.replace_answer(message_id)
    except ConversationBusyError:
        raise busy() from None
    except UsageError:
        raise Refused(
            409, "There is no such answer to regenerate; load the messages again."
        ) from None


async def resume_detached(
    agent: Agent[Any],
    conversation: Conversation,
    answers: Mapping[str, Approve | Deny | ToolResult | ToolFailure],
    *,
    runs: Runs,
    principal: str = "",
    **options: Unpack[ChatOptions],
) -> None:
    """Answer the pending approvals of a conversation, and let the run continue without a reader.

    The `options` go to `agent.resume`. Pass the `deps` and `hooks` of the chat again, also those of
    the functions `deps=` and `hooks=` of `app`. Returns as soon as the chat has begun. The user
    reads the answer through `resume_response`, or from `app` with `runs=site.runs`. The run counts
    as an answer of `principal`. Raises the errors that `resume` raises before anything runs, such
    as ApprovalError and ConversationBusyError. Raises Refused if the conversation is busy, or
    `runs` is full.
    """
    before = conversation.messages
    denied = denied_calls(conversation, answers)
    runs.check(conversation.id, principal)
    stream = agent.resume_stream(conversation, dict(answers), **options)
    header = Header(
        run=token_hex(6),
        chat_id=stream.chat_id,
        principal=principal,
        before=len(before),
        resumed=True,
        denied=denied,
    )
    live = runs.begin(
        conversation.id,
        stream,
        header,
        detached=True,
        before=before,
        scope_of=partial(scope_of_agent, agent),
    )
    await runs.until_begun(conversation.id, live)
