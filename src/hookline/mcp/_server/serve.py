"""Serve an agent as an MCP server: one tool, `chat`, over stdio or streamable HTTP.

The answer is the tool's result; pieces of it are sent as progress while it is written. If a client
cancels its request, the chat is aborted. A conversation that a client names is kept in the agent's
store, under the name of the logged-in user: no client can reach another user's conversation. A call
that needs an approval is presented to the client's user, unless the agent has an approver. If the
client can be asked during a call, it is asked; otherwise the tool's result contains the question,
and the client's next request contains the answer. If the client cannot ask its user at all, such
calls are denied.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from logging import getLogger
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote

import anyio

from hookline import Agent, ApprovalRequest, Conversation, Run, __version__
from hookline.errors import ApprovalError, ChatAbortedError, ConversationBusyError, UsageError
from hookline.events import TextDelta
from hookline.mcp._errors import sdk
from hookline.mcp._server.application import AgentApp
from hookline.mcp._server.questions import (
    APPROVAL,
    Decision,
    answers_of,
    decision_of,
    nobody,
    question_text,
)
from hookline.mcp._telemetry import measuring, measuring_sessions
from hookline.points import as_tuple

logger = getLogger("hookline.mcp")

MAX_MESSAGE: Final = 1024 * 1024  # characters
MAX_WAITING: Final = 1_000  # most conversations with pending questions
_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
_CLIENT_TOOL: Final = (
    "the agent called a tool that its client runs, and a client of MCP cannot run it; send another "
    "message"
)
_LATE: Final = "these answers are no longer expected; send the message again"
Principal: TypeAlias = Callable[[Any], str]
"""A function of the request that returns the name of its principal."""


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
) -> AgentApp:
    """Return an ASGI app to run or mount; the app serves an agent over streamable HTTP.

    `path` is the path of the server within the app. `stateless`: no session is kept between
    requests, so any process may answer the next request. `principal` receives the SDK's request
    context, and returns the name of the logged-in user. Without `principal`, the name consists of
    the client id and the subject of the access token. `host` is the address that the app listens
    at; on a loopback address, requests for other host names are refused. `allowed_hosts` are the
    only host names to accept, such as `"agents.example"` or `"localhost:*"`. `auth` and
    `token_verifier` are passed to the SDK. Raises UsageError if the extra is missing.
    """
    served = _Served(agent, name, description, principal)
    security = None
    if hosts := as_tuple("allowed_hosts", allowed_hosts):
        settings = sdk("mcp.server.transport_security").TransportSecuritySettings
        security = settings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=list(hosts),
            allowed_origins=[f"https://{name}" for name in hosts],
        )

    def make() -> Any:
        return served.server(sessions=not stateless).streamable_http_app(
            streamable_http_path=path,
            stateless_http=stateless,
            host=host,
            transport_security=security,
            auth=auth,
            token_verifier=token_verifier,
        )

    make()  # a wrong option is an error here, and not of the first request
    return AgentApp(make)


async def serve_stdio(
    agent: Agent[Any], *, name: str | None = None, description: str | None = None
) -> None:
    """Serve an agent on this process's stdin and stdout, until stdin is closed."""
    server = _Served(agent, name, description, None).server()
    stdio = sdk("mcp.server.stdio").stdio_server
    async with stdio() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


class _Served:
    """An agent behind the SDK's server."""

    def __init__(
        self,
        agent: Agent[Any],
        name: str | None,
        description: str | None,
        principal: Principal | None,
    ) -> None:
        if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"serve() needs an Agent, not {agent!r}")
        self._agent = agent
        self._name = name or agent.name
        self._description = description or f"Talk to the agent {self._name}."
        self._principal = principal or _client_of
        self._types: Any = sdk("mcp_types")
        self._waiting: OrderedDict[tuple[str, str], Conversation] = OrderedDict()

    def server(self, *, sessions: bool = True) -> Any:
        """Create the SDK's server; without `sessions` each request is a separate connection."""
        server = sdk("mcp.server").Server(
            self._name, version=__version__, on_list_tools=self._tools, on_call_tool=self._call
        )
        server.middleware.append(measuring("chat"))
        if sessions:
            server.middleware.append(measuring_sessions())
        return server

    async def _tools(self, ctx: Any, params: Any) -> Any:
        properties: dict[str, Any] = {
            "message": {"type": "string", "description": "The message to the agent."}
        }
        if self._agent.store is not None:
            properties["conversation"] = {
                "type": "string",
                "pattern": f"^{_ID.pattern}$",
                "description": "A name of your choice; reuse it to continue the conversation.",
            }
        schema = {"type": "object", "properties": properties, "required": ["message"]}
        tool = self._types.Tool(name="chat", description=self._description, input_schema=schema)
        return self._types.ListToolsResult(tools=[tool])

    async def _call(self, ctx: Any, params: Any) -> Any:
        try:
            message, conversation = self._arguments(params)
            work = self._chat(ctx, params, message, conversation)
            return await _in_task(work)
        except _InvalidRequest as exc:
            return self._error(str(exc))
        except ConversationBusyError:
            return self._error(
                "this conversation is busy; send the message again after the current answer"
            )
        except ChatAbortedError as exc:
            return self._error(f"the chat was aborted: {exc.reason}")
        except Exception as exc:
            if isinstance(exc, ApprovalError) and params.input_responses:
                return self._error(_LATE)
            # The text of an error may contain private data.
            logger.debug("a chat over MCP has failed", exc_info=exc)
            logger.warning("a chat over MCP has failed (%s)", type(exc).__name__)
            return self._error(f"the agent failed ({type(exc).__name__})")

    def _arguments(self, params: Any) -> tuple[str, str | None]:
        arguments: Mapping[str, Any] = params.arguments or {}
        message, conversation = arguments.get("message"), arguments.get("conversation")
        if params.name != "chat":
            raise _InvalidRequest("this server has only the tool chat; call chat")
        if not isinstance(message, str) or not message.strip() or len(message) > MAX_MESSAGE:
            raise _InvalidRequest(f"message must be a string of 1 to {MAX_MESSAGE} characters")
        if conversation is None:
            return message, None
        if not isinstance(conversation, str) or not _ID.fullmatch(conversation):
            raise _InvalidRequest(
                "conversation must be 1 to 100 letters, digits, '_', '-', '.' or ':'"
            )
        if self._agent.store is None:
            raise _InvalidRequest("this agent does not keep conversations; leave conversation out")
        return message, conversation

    # ── one chat ────────────────────────────────────────────────────────────────────────────

    async def _chat(self, ctx: Any, params: Any, message: str, conversation: str | None) -> Any:
        who = quote(self._principal(ctx), safe="")
        capabilities = ctx.session.client_capabilities
        can_ask = capabilities is not None and capabilities.elicitation is not None
        live = can_ask and ctx.session.can_send_request
        later = can_ask and not ctx.session.can_send_request
        options: dict[str, Any] = {"release": self._release()}
        if self._agent.approver is None and not later:
            options["approver"] = self._asker(ctx) if live else nobody
        answers = answers_of(params)
        if answers is not None:
            target: Any = self._waiting_conversation(who, params.request_state, conversation)
            stream = self._agent.resume_stream(target, answers, **options)
        else:
            target = Conversation() if conversation is None else _id(who, conversation)
            stream = self._agent.chat_stream(message, conversation=target, **options)
        count = 0
        async with stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    count += 1
                    await ctx.session.report_progress(count, message=event.text)
        response = stream.response
        if response.pending and later:
            return self._questions(who, target, response.pending)
        if response.client_calls:
            return self._error(_CLIENT_TOOL)
        text = self._types.TextContent(type="text", text=response.text)
        return self._types.CallToolResult(content=[text])

    def _release(self) -> Literal["live", "response"]:
        """Return "live", unless hooks may withdraw a text: a client cannot remove progress."""
        hooks = (*self._agent.hooks("onResponse"), *self._agent.hooks("preMessage"))
        return "live" if all(hook.keeps_deltas for hook in hooks) else "response"

    def _asker(self, ctx: Any) -> Callable[[ApprovalRequest, Run[Any]], Any]:
        async def ask(request: ApprovalRequest, run: Run[Any]) -> Decision:
            schema = APPROVAL if request.schema is None else dict(request.schema)
            reply = await ctx.session.elicit_form(
                question_text(request), schema, related_request_id=ctx.request_id
            )
            return decision_of(reply, form=request.schema is not None)

        return ask

    # ── questions that the client's next request answers ────────────────────────────────────

    def _questions(
        self, who: str, conversation: Conversation | str, pending: tuple[ApprovalRequest, ...]
    ) -> Any:
        """Return the questions for the client; the conversation waits for the answers."""
        types = self._types
        state = "kept"
        if isinstance(conversation, Conversation):
            state = conversation.id
            self._waiting[who, state] = conversation
            while len(self._waiting) > MAX_WAITING:
                self._waiting.popitem(last=False)
        questions = {
            request.id: types.ElicitRequest(
                params=types.ElicitRequestFormParams(
                    message=question_text(request), requested_schema=APPROVAL
                )
            )
            for request in pending
        }
        return types.InputRequiredResult(input_requests=questions, request_state=state)

    def _waiting_conversation(
        self, who: str, state: object, conversation: str | None
    ) -> Conversation | str:
        """Return the conversation that these answers belong to: never another principal's."""
        if conversation is not None:
            return _id(who, conversation)
        target = self._waiting.pop((who, str(state)), None)
        if target is None:
            raise _InvalidRequest(_LATE)
        return target

    def _error(self, text: str) -> Any:
        content = self._types.TextContent(type="text", text=text)
        return self._types.CallToolResult(content=[content], is_error=True)


class _InvalidRequest(Exception):
    """A request is invalid; the client receives the text."""


async def _in_task(work: Any) -> Any:
    """Run the chat in a separate task, because the SDK's scopes cancel repeatedly.

    When the request is cancelled, the chat is aborted once, and awaited.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # mark the exception as retrieved
        raise


def _id(who: str, conversation: str) -> str:
    return f"mcp:{who}:{conversation}"


def _client_of(ctx: Any) -> str:
    """Return the client of the access token; the same anonymous name without a token."""
    token = sdk("mcp.server.auth.middleware.auth_context").get_access_token()
    if token is None:
        return ""
    # A client id may be a URL: without quotes, another client could have the name of its user.
    names = (token.client_id, getattr(token, "subject", None))
    return "/".join([quote(str(name), safe="") for name in names if name])
