"""A single text in place of a list is refused: Python would take its letters for the items."""

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import get_annotations, isclass, isfunction, signature
from pathlib import Path
from typing import Any, get_args

import pytest

from hookline import (
    Agent,
    ApprovalRequest,
    AssistantMessage,
    Conversation,
    MessageChanges,
    ModelResponse,
    Scope,
    Settings,
    ToolCall,
    ToolFailure,
    ToolResult,
    UserMessage,
    check_history,
    define_hook,
)
from hookline.discovery import from_entry_points, from_folder
from hookline.durable import Client
from hookline.errors import UsageError
from hookline.events import ChatEvent
from hookline.hooks import allow_tools, budget, deny_commands, rate_limit, redact, review, truncate
from hookline.mcp import MCPServer, serve
from hookline.points import as_tuple, matches
from hookline.providers.anthropic import AnthropicSettings
from hookline.providers.google import GoogleSettings
from hookline.providers.openai import OpenAISettings
from hookline.providers.openai_chat import OpenAIChatSettings
from hookline.providers.tools import file_search, remote_mcp, web_search
from hookline.testing import ScriptedModel, Turn, record
from hookline.web import Page, app

ONE: Any = "swordfish"


def agent(**given: Any) -> Agent[Any]:
    return Agent(ScriptedModel("ok"), **given)


TAKES_LISTS: dict[str, Callable[[Any], object]] = {
    "Agent tools": lambda one: agent(tools=one),
    "Agent scopes": lambda one: agent(scopes=one),
    "Agent hooks": lambda one: agent(hooks=one),
    "Agent known_hooks": lambda one: agent(known_hooks=one),
    "Agent output_validators": lambda one: agent(output_validators=one),
    "Agent plugins": lambda one: agent(plugins=one),
    "Agent without": lambda one: agent().twin(without=one),
    "review tools": lambda one: review(ScriptedModel(), tools=one),
    "Scope tools": lambda one: Scope("a", tools=one),
    "Settings stop": lambda one: Settings(stop=one),
    "UserMessage parts": lambda one: UserMessage(parts=one),
    "AssistantMessage parts": lambda one: AssistantMessage(parts=one),
    "ModelResponse parts": lambda one: ModelResponse(parts=one),
    "MessageChanges parts": lambda one: MessageChanges(parts=one),
    "ToolResult media": lambda one: ToolResult("", media=one),
    "ToolFailure issues": lambda one: ToolFailure("", issues=one),
    "matches patterns": lambda one: matches("search", one),
    "define_hook tools": lambda one: define_hook("preToolCall", lambda ctx: None, tools=one),
    "budget finish_reasons": lambda one: budget(finish_reasons=one),
    "deny_commands tools": lambda one: deny_commands("rm", tools=one),
    "rate_limit tools": lambda one: rate_limit(1, tools=one),
    "truncate tools": lambda one: truncate(tools=one),
    "redact values": lambda one: redact(values=one),
    "file_search vector_stores": lambda one: file_search(vector_stores=one),
    "file_search stores": lambda one: file_search(stores=one),
    "web_search allowed_domains": lambda one: web_search(allowed_domains=one),
    "remote_mcp allowed_tools": lambda one: remote_mcp("a", "https://a.b", allowed_tools=one),
    "MCPServer allow": lambda one: MCPServer.stdio("a", allow=one),
    "MCPServer deny": lambda one: MCPServer.stdio("a", deny=one),
    "MCPServer approve": lambda one: MCPServer.stdio("a", approve=one),
    "serve allowed_hosts": lambda one: serve(agent(), allowed_hosts=one),
    "app hosts": lambda one: app(agent(), hosts=one),
    "app origins": lambda one: app(agent(), origins=one),
    "Page starters": lambda one: Page(starters=one),
    "from_entry_points names": lambda one: from_entry_points(one),
    "from_entry_points required": lambda one: from_entry_points(required=one),
    "from_folder required": lambda one: from_folder(Path(__file__).parent, required=one),
    "record points": lambda one: record(agent(), points=one),
    "record events": lambda one: record(agent(), events=one),
    "Conversation messages": lambda one: Conversation(messages=one),
    "Conversation.restore messages": lambda one: Conversation().restore(one),
    "check_history messages": check_history,
    "ModelResponse.of tool_calls": lambda one: ModelResponse.of(tool_calls=one),
    "Turn tool_calls": lambda one: Turn(tool_calls=one),
    "OpenAISettings stop": lambda one: OpenAISettings(stop=one),
    "OpenAIChatSettings stop": lambda one: OpenAIChatSettings(stop=one),
    "AnthropicSettings stop": lambda one: AnthropicSettings(stop=one),
    "GoogleSettings stop": lambda one: GoogleSettings(stop=one),
    "OpenAISettings include": lambda one: OpenAISettings(include=one),
    "OpenAIChatSettings modalities": lambda one: OpenAIChatSettings(modalities=one),
    "AnthropicSettings beta": lambda one: AnthropicSettings(beta=one),
    "GoogleSettings modalities": lambda one: GoogleSettings(modalities=one),
    "ApprovalRequest path": lambda one: ApprovalRequest(
        id="",
        call=ToolCall(id="c", name="n"),
        prompts=(),
        chat_id="",
        iteration=0,
        digest="",
        path=one,
    ),
    "ApprovalRequest prompts": lambda one: ApprovalRequest(
        id="", call=ToolCall(id="c", name="n"), prompts=one, chat_id="", iteration=0, digest=""
    ),
}


@pytest.mark.parametrize("where", TAKES_LISTS)
def test_a_single_text_is_no_list(where: str) -> None:
    with pytest.raises(UsageError, match=f"{where.split()[1]}=.*must be a list"):
        TAKES_LISTS[where](ONE)


@pytest.mark.parametrize("name", ["tools", "hooks", "only_hooks", "output_validators"])
async def test_nor_is_it_one_for_a_chat(name: str) -> None:
    wrong: Any = {name: ONE}
    with pytest.raises(UsageError, match=f"{name.removeprefix('only_')}=.*must be a list"):
        await agent().chat("hi", **wrong)


# Lists of texts that hookline itself makes, or reads from its own stored data.
MADE_BY_HOOKLINE = {
    *("AgUiEncoder", "AiSdkEncoder", "Clients", "Exchange", "HistoryError", "HookInfo"),
    *("Incoming", "Journal", "OutputError", "PendingStep", "Preset", "Recorder", "Repair"),
    *("ToolArgumentsError", "UnknownHookError", "UnknownToolError", "scrubbed", "text_of_events"),
    *("Effects", "Event", *(kind.__name__ for kind in get_args(ChatEvent))),
}
CHECKED_ELSEWHERE = {
    "Conversation answer_ids",  # which only the engine passes
    "Conversation call_ids",  # likewise
    "Probe approved_paths",  # made by probe()
    "Probe guards",  # likewise
    "Probe notes",
    "RanCall hooks",  # made by the engine
    "RanCall hook_ids",  # likewise
    "Client hooks",  # test_nor_is_it_one_for_a_durable_chat
    "Worker identity_keys",  # needs the package of Restate
    "chats identity_keys",
    "oauth allow_hosts",  # tests/mcp/test_oauth_addresses.py
}
DOORS = (
    *("", ".points", ".events", ".models", ".storage", ".errors", ".runtimes", ".hooks", ".web"),
    *(".stores", ".testing", ".mcp", ".discovery", ".dialogue", ".streams", ".formats", ".durable"),
    *(".providers", ".providers.tools", ".providers.openai", ".providers.openai_chat"),
    *(".providers.anthropic", ".providers.google", ".durable.restate", ".durable.postgres"),
)
TEXTS = re.compile(
    r"\b(?:Iterable|Sequence|Collection|list|tuple|set|frozenset)\[(?:str|Literal)\b"
)


def lists_of_texts() -> Iterator[str]:
    """The public callables with an argument that takes a list of texts, and the argument."""
    for door in DOORS:
        module = import_module(f"hookline{door}")
        for name in module.__all__:
            given = getattr(module, name)
            if not callable(given) or not (isclass(given) or isfunction(given)):
                continue
            methods = [value for key, value in vars(given).items() if not key.startswith("_")]
            for each in [given, *(methods if isclass(given) else ())]:
                plain = getattr(each, "__func__", each)
                if plain is not given and not isfunction(plain):
                    continue
                for argument in arguments(plain):
                    yield f"{name} {argument}"


def arguments(given: Any) -> list[str]:
    if hasattr(given, "__struct_fields__"):
        types = {k: v for kind in reversed(given.__mro__) for k, v in get_annotations(kind).items()}
        return [name for name in given.__struct_fields__ if TEXTS.search(str(types[name]))]
    try:
        parameters = signature(given).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        each.name
        for each in parameters
        if TEXTS.search(str(each.annotation)) and each.kind is not each.VAR_POSITIONAL
    ]


def test_every_public_argument_that_takes_a_list_of_texts_is_tried_here() -> None:
    tried = set(TAKES_LISTS) | CHECKED_ELSEWHERE
    found = {each for each in lists_of_texts() if each.split()[0] not in MADE_BY_HOOKLINE}
    assert len(found) > 15
    assert sorted(found - tried) == []


async def test_nor_is_it_one_for_a_durable_chat() -> None:
    nothing: Any = None
    with pytest.raises(UsageError, match="hooks= must be a list"):
        await Client.start(nothing, "hi", hooks=ONE)


def test_a_single_object_is_no_list_either() -> None:
    with pytest.raises(UsageError, match="tools= must be a list, but its type is function"):
        agent(tools=test_a_single_object_is_no_list_either)


def test_what_may_be_a_secret_is_not_in_the_error() -> None:
    with pytest.raises(UsageError) as caught:
        redact(values=ONE)
    assert "swordfish" not in str(caught.value)


def test_any_iterable_is_a_list() -> None:
    assert as_tuple("each", (n for n in "ab")) == ("a", "b")
    assert as_tuple("each", ["ab"]) == ("ab",)
    assert as_tuple("each", {"ab": 1}) == ("ab",)


MANY: Any = ["a", "b"]
BYTES: Any = re.compile(b"a")
NUMBERS: Any = [1234]
NO_TEXTS: dict[str, Callable[[], object]] = {
    "allow_tools a list": lambda: allow_tools(MANY),
    "allow_tools empty": lambda: allow_tools(""),
    "deny_commands a list": lambda: deny_commands(MANY),
    "deny_commands bytes": lambda: deny_commands(BYTES),
    "redact a list": lambda: redact(MANY),
    "redact bytes": lambda: redact(BYTES),
    "redact no expression": lambda: redact("[a"),
    "redact a number": lambda: redact(values=NUMBERS),
}


@pytest.mark.parametrize("what", NO_TEXTS)
def test_nor_is_a_list_a_single_text(what: str) -> None:
    with pytest.raises(UsageError, match=what.split()[0]):
        NO_TEXTS[what]()
