"""An agent as a server: one tool, `chat`, over stdio or streamable HTTP.

The answer comes as the tool's result, and its pieces as progress while it is written. A client that
cancels its request aborts the chat. A conversation that a client names is kept in the agent's
store, under the name of who is logged in: no client reaches another's. A call that needs an
approval is put to the client's user: where the client can be asked in mid-call it is, else the
result of the tool says what is asked, and the client's next request brings the answer. A client
that cannot ask anybody has such calls denied.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from logging import getLogger
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from hookline import Agent, ApprovalRequest, Approve, Conversation, Deny, Run
from hookline.errors import ChatAbortedError, ConversationBusyError, UsageError
from hookline.events import TextDelta
from hookline.mcp._errors import sdk

logger = getLogger("hookline.mcp")

MAX_MESSAGE: Final = 1024 * 1024  # characters
MAX_WAITING: Final = 1_000  # conversations whose questions wait for a client's next request
_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
_APPROVAL: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"approve": {"type": "boolean", "title": "Approve", "default": False}},
    "required": ["approve"],
}
Principal: TypeAlias = Callable[[Any], str]
Decision: TypeAlias = Approve | Deny


def serve(
    agent: Agent[Any],
    *,
    name: str | None = None,
    description: str | None = None,
    path: str = "/mcp",
    stateless: bool = False,
    principal: Principal | None = None,
    host: str = "127.0.0.1",
    allowed_hosts: tuple[str, ...] = (),
    auth: Any = None,
    token_verifier: Any = None,
) -> Any:
    """An ASGI app that serves an agent by streamable HTTP, to be run by uvicorn or mounted.

    `stateless`: no session is kept between requests, so that any process may answer the next one.
    `principal` gives the name of who is logged in, of the SDK's request context; otherwise it is
    the client of the access token. `host` and `allowed_hosts` say under which names it is reached;
    `auth` and `token_verifier` are the SDK's. Raises UsageError where the extra is missing.
    """
    server = _Served(agent, name, description, principal).server()
    security = None
    if allowed_hosts:
        settings = sdk("mcp.server.transport_security").TransportSecuritySettings
        security = settings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=list(allowed_hosts),
            allowed_origins=[f"https://{each}" for each in allowed_hosts],
        )
    return server.streamable_http_app(
        streamable_http_path=path,
        stateless_http=stateless,
        host=host,
        transport_security=security,
        auth=auth,
        token_verifier=token_verifier,
    )


async def serve_stdio(
    agent: Agent[Any], *, name: str | None = None, description: str | None = None
) -> None:
    """Serve an agent on this process's stdin and stdout, until stdin is closed."""
    server = _Served(agent, name, description, None).server()
    stdio = sdk("mcp.server.stdio").stdio_server
    async with stdio() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


class _Served:
    """An agent, as the SDK's server calls it."""

    def __init__(
        self,
        agent: Agent[Any],
        name: str | None,
        description: str | None,
        principal: Principal | None,
    ) -> None:
        if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"serve({agent!r}) needs an Agent")
        self._agent = agent
        self._name = name or agent.name
        self._description = description or f"Talk to the agent {self._name}."
        self._principal = principal or _client_of
        self._types: Any = sdk("mcp_types")
        self._waiting: OrderedDict[tuple[str, str], Conversation] = OrderedDict()

    def server(self) -> Any:
        """The SDK's server."""
        return sdk("mcp.server").Server(
            self._name, on_list_tools=self._tools, on_call_tool=self._call
        )

    async def _tools(self, ctx: Any, params: Any) -> Any:
        properties: dict[str, Any] = {
            "message": {"type": "string", "description": "The message to the agent."}
        }
        if self._agent.store is not None:
            properties["conversation"] = {
                "type": "string",
                "pattern": f"^{_ID.pattern}$",
                "description": "A name of your choice; the same name goes on where it ended.",
            }
        schema = {"type": "object", "properties": properties, "required": ["message"]}
        tool = self._types.Tool(name="chat", description=self._description, input_schema=schema)
        return self._types.ListToolsResult(tools=[tool])

    async def _call(self, ctx: Any, params: Any) -> Any:
        try:
            message, conversation = self._arguments(params)
            work = self._chat(ctx, params, message, conversation)
            return await _apart(work)
        except _Refused as exc:
            return self._error(str(exc))
        except ConversationBusyError:
            return self._error("this conversation is busy; send the message when it has answered")
        except ChatAbortedError as exc:
            return self._error(f"the chat was aborted: {exc.reason}")
        except Exception as exc:
            # The text of an error may hold what is nobody else's business.
            logger.debug("a chat by MCP has failed", exc_info=exc)
            logger.warning("a chat by MCP has failed (%s)", type(exc).__name__)
            return self._error(f"the agent failed ({type(exc).__name__})")

    def _arguments(self, params: Any) -> tuple[str, str | None]:
        given: Mapping[str, Any] = params.arguments or {}
        message, conversation = given.get("message"), given.get("conversation")
        if params.name != "chat":
            raise _Refused("there is no such tool; call chat")
        if not isinstance(message, str) or not message.strip() or len(message) > MAX_MESSAGE:
            raise _Refused(f"message must be a text of 1 to {MAX_MESSAGE} characters")
        if conversation is None:
            return message, None
        if not isinstance(conversation, str) or not _ID.fullmatch(conversation):
            raise _Refused("conversation must be 1 to 100 letters, digits, '_', '-', '.' or ':'")
        if self._agent.store is None:
            raise _Refused("this agent keeps no conversations; leave conversation out")
        return message, conversation

    # ── one chat ────────────────────────────────────────────────────────────────────────────

    async def _chat(self, ctx: Any, params: Any, message: str, conversation: str | None) -> Any:
        who = quote(self._principal(ctx), safe="")
        live = ctx.session.can_send_request and self._can_ask(ctx)
        later = not ctx.session.can_send_request and self._can_ask(ctx)
        approver = self._asker(ctx) if live else None if later else _nobody
        answers = _answers(params)
        if answers is not None:
            waited: Any = self._waited(who, params.request_state, conversation)
            stream = self._agent.resume_stream(waited, answers)
        else:
            waited = Conversation() if conversation is None else _id(who, conversation)
            options: Any = {} if approver is None else {"approver": approver}
            stream = self._agent.chat_stream(message, conversation=waited, **options)
        shown = 0
        async with stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    shown += 1
                    await ctx.session.report_progress(shown, message=event.text)
        response = stream.response
        if response.pending and later:
            return self._questions(who, waited, response.pending)
        text = self._types.TextContent(type="text", text=response.text)
        return self._types.CallToolResult(content=[text])

    def _can_ask(self, ctx: Any) -> bool:
        capabilities = ctx.session.client_capabilities
        return capabilities is not None and capabilities.elicitation is not None

    def _asker(self, ctx: Any) -> Callable[[ApprovalRequest, Run[Any]], Any]:
        async def ask(request: ApprovalRequest, run: Run[Any]) -> Decision:
            schema = _APPROVAL if request.schema is None else dict(request.schema)
            found = await ctx.session.elicit_form(
                _worded(request), schema, related_request_id=ctx.request_id
            )
            return _decision(found, form=request.schema is not None)

        return ask

    # ── questions that the client's next request answers ────────────────────────────────────

    def _questions(
        self, who: str, conversation: Conversation | str, pending: tuple[ApprovalRequest, ...]
    ) -> Any:
        """What has to be asked; the conversation waits for the answers."""
        types = self._types
        state = "kept"
        if isinstance(conversation, Conversation):
            state = conversation.id
            self._waiting[who, state] = conversation
            while len(self._waiting) > MAX_WAITING:
                self._waiting.popitem(last=False)
        asked = {
            request.id: types.ElicitRequest(
                params=types.ElicitRequestFormParams(
                    message=_worded(request), requested_schema=_APPROVAL
                )
            )
            for request in pending
        }
        return types.InputRequiredResult(input_requests=asked, request_state=state)

    def _waited(self, who: str, state: object, conversation: str | None) -> Conversation | str:
        """The conversation that these answers are for: never another principal's."""
        if conversation is not None:
            return _id(who, conversation)
        found = self._waiting.pop((who, str(state)), None)
        if found is None:
            raise _Refused("nothing waits for these answers any more; send the message again")
        return found

    def _error(self, text: str) -> Any:
        content = self._types.TextContent(type="text", text=text)
        return self._types.CallToolResult(content=[content], is_error=True)


class _Refused(Exception):
    """A request that cannot be served; its text is told to the client."""


async def _apart(work: Any) -> Any:
    """Run the chat in a task of its own: the SDK's scopes cancel again and again, and it ends once.

    When the request is cancelled the chat is aborted, and waited for.
    """
    anyio: Any = sdk("anyio")
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # it was looked at
        raise


def _answers(params: Any) -> dict[str, Decision] | None:
    given = params.input_responses
    if not given:
        return None
    return {id: _decision(found) for id, found in given.items()}


def _decision(found: Any, *, form: bool = False) -> Decision:
    """The client's answer: it approves where its user has said so, and denies otherwise."""
    content: Mapping[str, Any] = getattr(found, "content", None) or {}
    if getattr(found, "action", None) != "accept":
        return Deny("the user declined")
    if form:
        return Approve(arguments=dict(content))
    return Approve() if content.get("approve") is True else Deny("the user did not approve")


def _nobody(request: ApprovalRequest, run: Run[Any]) -> Decision:
    return Deny("the client cannot ask its user")


def _worded(request: ApprovalRequest) -> str:
    """What the client's user is asked: with the whole of what would run."""
    words = "\n".join(request.prompts)
    if request.schema is not None:
        return words
    arguments = json.dumps(request.call.arguments, ensure_ascii=False)
    return f"{words}\n{request.call.name} {arguments}"


def _id(who: str, conversation: str) -> str:
    return f"mcp:{who}:{conversation}"


def _client_of(ctx: Any) -> str:
    """Who is logged in, by the access token; nobody in particular without one."""
    token = sdk("mcp.server.auth.middleware.auth_context").get_access_token()
    if token is None:
        return ""
    subject = getattr(token, "subject", None)
    return f"{token.client_id}/{subject}" if subject else str(token.client_id)
