"""The request of one model call, and its record for a durable runtime.

A request is built for each step from the history, the scopes that are on now, and the overrides of
preChat. The record contains tools and models by name, and messages only if they differ from the
history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import isawaitable
from typing import Any, Final, TypeAlias

import msgspec

from hookline._base.cancel import no_cancellation_of_its_own
from hookline._base.errors import HookReturnError, ModelError, UsageError
from hookline._base.json import clean_text
from hookline._base.messages import (
    AssistantMessage,
    Data,
    Message,
    ToolMessage,
    UserMessage,
)
from hookline._base.returns import Stop
from hookline._base.run import Run
from hookline._chat.call import CallRun
from hookline._chat.reach import check_guards
from hookline._chat.recorder import ChatReturns
from hookline._chat.state import Chat
from hookline._conversations.history import check_history
from hookline._hooks.call_rules import intercept
from hookline._hooks.points import PreRequest
from hookline._model.model import (
    ChatRequest,
    ModelRequest,
    ModelResponse,
    OutputSchema,
    Settings,
    model_name,
)
from hookline._record.runtime import Json
from hookline._tools.scopes import Scope, Sections
from hookline._tools.tool import AnyTool, unknown_tool

FROM_HOOK = Scope("request")  # of a tool that a hook has added to the request


class Overrides(Data, frozen=True, kw_only=True):
    """The changes of preChat. None: ask the agent at each step."""

    system: str | None = None
    tools: tuple[AnyTool, ...] | None = None
    settings: Settings | None = None


AS_IT_IS = Overrides()


async def system_text(chat: Chat, system: Callable[[Run[Any]], Any]) -> str | None:
    """The system text that the agent's function returns; it is called each time."""
    with no_cancellation_of_its_own(UsageError, "the system= function", "return None"):
        result: Any = system(chat.run)
        text = await result if isawaitable(result) else result
    if text is None or isinstance(text, str):
        return text
    raise UsageError(f"the system= function returned a {type(text).__name__}; return a str or None")


async def first_request(chat: Chat, message: UserMessage | None) -> ChatRequest:
    """The request that preChat gets."""
    system = chat.config.system
    return ChatRequest(
        message=message,
        system=await system_text(chat, system) if callable(system) else system,
        tools=chat.config.scopes.tools_for(chat.run),
        settings=chat.config.settings,
    )


def overrides_of(before: ChatRequest, after: ChatRequest) -> Overrides:
    """The changes of preChat."""
    return Overrides(
        system=None if after.system == before.system else after.system or "",
        tools=None if after.tools is before.tools else after.tools,
        settings=None if after.settings == before.settings else after.settings,
    )


async def build_request(
    chat: Chat, overrides: Overrides, first_answer: ModelResponse | None
) -> BuiltRequest:
    """Build the request of the step that begins, and pass it through preRequest.

    With a `first_answer`, which stands in for the model's, no hook sees the request.
    """
    config, view, step = chat.config, chat.view, chat.step
    system = config.system if overrides.system is None else overrides.system
    if callable(system):
        system = await system_text(chat, system)
    tools, sections = config.scopes.on(chat)
    step.base_tools = tools
    if overrides.tools is not None:
        tools = _still_on(chat, overrides.tools, tools)
    if sections.system:
        system = f"{system}\n\n{sections.system}" if system else sections.system
    messages: Sequence[Message] = chat.conversation.for_request()
    if sections.user:
        messages = with_section(messages, sections)
    step.base_messages = messages
    request = ModelRequest(
        model=config.model,
        messages=messages,
        system=clean_text(system) if system else None,
        tools=tools,
        settings=overrides.settings or config.settings,
        output=None if config.output is None else config.output.schema,
    )
    answer: ModelResponse | Stop | None = first_answer
    if first_answer is None and view.preRequest:
        ctx: PreRequest[Any] = PreRequest(run=chat.run, iteration=chat.iteration, request=request)
        ctx, answer, _ = await intercept(view.preRequest, ctx, chat)
        request = _check_request(chat, request, ctx.request)
    if view.tool_guards and not isinstance(answer, Stop):
        check_guards(chat, request)
    return BuiltRequest(request=request, answer=answer)


def _still_on(
    chat: Chat, tools: Sequence[AnyTool], tools_on: Sequence[AnyTool]
) -> tuple[AnyTool, ...]:
    """Those of preChat's tools that are on now, or that no scope has."""
    on, find = {tool.name for tool in tools_on}, chat.config.scopes.find
    return tuple(tool for tool in tools if tool.name in on or find(tool.name) is None)


def with_section(messages: Sequence[Message], sections: Sections) -> tuple[Message, ...]:
    """The messages with the sections added to the last user message; never stored."""
    out = list(messages)
    for place in range(len(out) - 1, -1, -1):
        message = out[place]
        if isinstance(message, UserMessage):
            out[place] = message.replace(text=clean_text(f"{message.text}\n\n{sections.user}"))
            break
    return tuple(out)


def _check_request(chat: Chat, before: ModelRequest, request: ModelRequest) -> ModelRequest:
    """The request as hooks have left it; raises if it cannot be sent."""
    if request is before:
        return before
    if request.tools is not before.tools:
        names = [tool.name for tool in request.tools]
        if len(set(names)) != len(names):
            raise HookReturnError("preRequest", "(chain)", request, "tools with different names")
    if request.messages is not before.messages:
        request = request.replace(messages=tuple(request.messages))  # a copy of the hook's list
        check_history(request.messages)
        chat.step.base_messages = request.messages
    return request


def look_up(chat: Chat, request: ModelRequest | None, run: CallRun) -> None:
    """Set the call's tool, its scope, and whether this step's final request offered the tool."""
    name = run.call.name
    run.tool, run.scope = chat.config.scopes.tools.get(name, (None, None))
    run.is_offered = False
    if request is None:
        return
    if run.tool is not None and run.tool in request.tools:
        run.is_offered = True
        return
    # A hook may have offered a tool of its own; the model has called the one that it was offered.
    for tool in request.tools:
        if tool.name == name:
            if any(base_tool is tool for base_tool in chat.step.base_tools):
                run.tool = run.scope = None  # its scope was removed since
            else:
                run.tool, run.scope, run.is_offered = tool, FROM_HOOK, True
            return


# ── the record of a request ─────────────────────────────────────────────────────────────────


class BuiltRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The final request of a step, and a hook's answer in place of the model's."""

    request: ModelRequest
    answer: ModelResponse | Stop | None = None


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    system: str | None
    tools: list[str]
    foreign: list[str]  # the tools among them that a hook has brought
    settings: Settings
    model: str
    messages: list[UserMessage | AssistantMessage | ToolMessage] | None  # None: the history's
    answer: ModelResponse | Stop | None = None
    output: OutputSchema | None = None


def _pack_request(chat: Chat, value: BuiltRequest) -> _Record:
    request = value.request
    whole = chat.conversation.for_request()
    unchanged = len(request.messages) == len(whole) and request.messages == whole
    return _Record(
        system=request.system,
        tools=[tool.name for tool in request.tools],
        foreign=foreign_names(chat, request.tools),
        settings=request.settings,
        model=model_name(request.model),
        messages=None if unchanged else list(request.messages),
        answer=value.answer,
        output=request.output,
    )


def _unpack_request(chat: Chat, record: _Record) -> BuiltRequest:
    messages: Sequence[Message] = chat.conversation.for_request()
    if record.messages is not None:
        messages = tuple(record.messages)
    model = chat.config.model
    request = ModelRequest(
        model=model if model_name(model) == record.model else _Absent(record.model),
        messages=messages,
        system=record.system,
        tools=known_tools(chat, record.tools, record.foreign),
        settings=record.settings,
        output=record.output,
    )
    return BuiltRequest(request=request, answer=record.answer)


BUILT_REQUEST: Final[ChatReturns[BuiltRequest]] = ChatReturns(
    form=Json(_Record), pack=_pack_request, unpack=_unpack_request
)
"""Records messages only if hooks have changed them."""


class _Absent:
    """A placeholder for a model that a hook chose in an earlier life, unknown here."""

    def __init__(self, name: str) -> None:
        self.name = name

    def stream(self, request: ModelRequest, /) -> Any:
        raise ModelError(
            f"the recorded request was for model {self.name!r}, which is unknown here; give the "
            "agent that model"
        )


def foreign_names(chat: Chat, tools: Sequence[AnyTool]) -> list[str]:
    """The names of the tools that a hook has brought, not the agent."""
    find = chat.config.scopes.find
    return [t.name for t in tools if (entry := find(t.name)) is None or entry[0] is not t]


def known_tools(chat: Chat, names: Sequence[str], foreign: Sequence[str]) -> tuple[AnyTool, ...]:
    """Recorded tools by name. A hook's tool is never replaced by the agent's of that name."""
    find = chat.config.scopes.find
    tools: list[AnyTool] = []
    for name in names:
        entry = find(name)
        tools.append(unknown_tool(name) if entry is None or name in foreign else entry[0])
    return tuple(tools)


def tools_by_name(tools: Sequence[AnyTool], names: Sequence[str]) -> tuple[AnyTool, ...]:
    """The tools with these names; a missing tool was a wrapper's own."""
    by_name = {tool.name: tool for tool in tools}
    return tuple(by_name.get(name) or unknown_tool(name) for name in names)


class PreChatEnd(msgspec.Struct, frozen=True):
    """The result of preChat: its changes, the message, and an answer in place of the model's."""

    overrides: Overrides
    message: UserMessage | None
    answer: ModelResponse | Stop | None


_PreChatRecord: TypeAlias = tuple[
    str | None,  # the system text
    list[str] | None,  # the tools …
    list[str],  # … and those among them that a hook has brought
    Settings | None,
    UserMessage | None,
    ModelResponse | Stop | None,
]


def _pack_pre_chat(chat: Chat, end: PreChatEnd) -> _PreChatRecord:
    overrides = end.overrides
    names = None if overrides.tools is None else [tool.name for tool in overrides.tools]
    foreign = foreign_names(chat, overrides.tools or ())
    return overrides.system, names, foreign, overrides.settings, end.message, end.answer


def _unpack_pre_chat(chat: Chat, record: _PreChatRecord) -> PreChatEnd:
    system, names, foreign, settings, message, answer = record
    tools = None if names is None else known_tools(chat, names, foreign)
    overrides = Overrides(system=system, tools=tools, settings=settings)
    return PreChatEnd(overrides, message, answer)


PRE_CHAT_END: Final[ChatReturns[PreChatEnd]] = ChatReturns(
    form=Json(_PreChatRecord), pack=_pack_pre_chat, unpack=_unpack_pre_chat
)
