"""The methods that start a chat: `chat`, `chat_stream`, `resume` and `resume_stream`.

Every keyword is spelled out so that editors and `help()` show it. The file is long because each
method has one overload for each form of `output=`, and the implementation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar, overload

from msgspec import UNSET, UnsetType

from hookline._base.input import Input
from hookline._base.returns import Answer, OutT, Response
from hookline._base.run import DepsT
from hookline._chat.config import (
    Approver,
    ChatInput,
    ChatOptions,
    Config,
    Limits,
    OutputValidator,
    Release,
    SystemText,
)
from hookline._chat.state import new_chat
from hookline._chat.stream import ChatStream
from hookline._chat.supervisor import Supervisor
from hookline._conversations.conversation import Conversation
from hookline._hooks.declared import HooksArgument
from hookline._model.model import Model, Settings
from hookline._record.runtime import Runtime
from hookline._tools.tool import ToolLike

E = TypeVar("E")


def _options(arguments: dict[str, Any]) -> ChatOptions:
    """The keywords of a chat, from the `locals()` at the start of the method that declares them.

    Every keyword of these methods is a field of `ChatOptions`.
    """
    for name in ("self", "input", "answers"):
        arguments.pop(name, None)
    return ChatOptions(**arguments)


class Chats(Generic[DepsT, OutT]):
    """The methods that run an agent's chats."""

    @overload
    async def chat(
        self,
        input: Input | None,
        *,
        conversation: Conversation | str | None = None,
        deps: DepsT | None = None,
        state: dict[str, Any] | None = None,
        hooks: HooksArgument | None = None,
        only_hooks: HooksArgument | None = None,
        model: Model | str | None = None,
        system: SystemText = None,
        tools: Iterable[ToolLike] | None = None,
        settings: Settings | None = None,
        limits: Limits | None = None,
        approver: Approver | UnsetType | None = UNSET,
        output: type[E],
        output_retries: int | None = None,
        output_validators: Iterable[OutputValidator] | None = None,
        release: Release = "live",
        runtime: Runtime | None = None,
        chat_id: str | None = None,
    ) -> Response[E]: ...
    @overload
    async def chat(
        self,
        input: Input | None,
        *,
        conversation: Conversation | str | None = None,
        deps: DepsT | None = None,
        state: dict[str, Any] | None = None,
        hooks: HooksArgument | None = None,
        only_hooks: HooksArgument | None = None,
        model: Model | str | None = None,
        system: SystemText = None,
        tools: Iterable[ToolLike] | None = None,
        settings: Settings | None = None,
        limits: Limits | None = None,
        approver: Approver | UnsetType | None = UNSET,
        output: None = None,
        output_retries: int | None = None,
        output_validators: Iterable[OutputValidator] | None = None,
        release: Release = "live",
        runtime: Runtime | None = None,
        chat_id: str | None = None,
    ) -> Response[OutT]: ...
    @overload
    async def chat(
        self,
        input: Input | None,
        *,
        conversation: Conversation | str | None = None,
        deps: DepsT | None = None,
        state: dict[str, Any] | None = None,
        hooks: HooksArgument | None = None,
        only_hooks: HooksArgument | None = None,
        model: Model | str | None = None,
        system: SystemText = None,
        tools: Iterable[ToolLike] | None = None,
        settings: Settings | None = None,
        limits: Limits | None = None,
        approver: Approver | UnsetType | None = UNSET,
        output: object,
        output_retries: int | None = None,
        output_validators: Iterable[OutputValidator] | None = None,
        release: Release = "live",
        runtime: Runtime | None = None,
        chat_id: str | None = None,
    ) -> Response[Any]: ...
    async def chat(
        self,
        input: Input | None,
        *,
        conversation: Conversation | str | None = None,
        deps: DepsT | None = None,
        state: dict[str, Any] | None = None,
        hooks: HooksArgument | None = None,
        only_hooks: HooksArgument | None = None,
        model: Model | str | None = None,
        system: SystemText = None,
        tools: Iterable[ToolLike] | None = None,
        settings: Settings | None = None,
        limits: Limits | None = None,
        approver: Approver | UnsetType | None = UNSET,
        output: object = None,
        output_retries: int | None = None,
        output_validators: Iterable[OutputValidator] | None = None,
        release: Release = "live",
        runtime: Runtime | None = None,
        chat_id: str | None = None,
    ) -> Response[Any]:
        """Run one chat to its end and return its response; `chat_stream` also returns the events.

        Raises the exception that ended the chat. This is MaxStepsError, OutputError,
        ChatAbortedError, or an exception that a hook, a tool wrapper or the model raised. Raises
        ConversationBusyError, UsageError or ScopeError before the chat starts.

        Args:
            input: The user's message: text, a UserMessage, or a list of parts. Pass None to
                continue a conversation whose last message is from the user or a tool.
            conversation: A Conversation, or the id of a conversation in the agent's store. Without
                a conversation, nothing is remembered.
            deps: The value of `run.deps` in hooks and tools.
            state: The dict that becomes `run.state`.
            hooks: Hooks that are added to the agent's hooks for this chat.
            only_hooks: Hooks that replace the agent's declared hooks in this chat. Declared hooks
                that are marked `required` still run.
            model: The model for this chat: a Model, or the name of a model.
            system: The system text for this chat, or a function that takes the run and returns
                the text.
            tools: Tools that are added for this chat, in a scope named `chat`.
            settings: Settings of model calls; fields that are not set keep the agent's values.
            limits: Limits of this chat; fields that are not set keep the agent's values.
            approver: A function that answers the question if a hook returns Ask. This function
                replaces the agent's approver. With None, the question waits in the conversation.
            output: The type of the answer; the value is in `response.output`. If the agent has
                another type, pass `str` for plain text.
            output_retries: How many times the model may correct an invalid answer.
            output_validators: Functions that check the answer; without `output=`, they check the
                text. A function may raise ValueError to tell the model what is wrong.
            release: "live" streams text as it arrives; "response" streams text after the hooks at
                `onResponse` have run.
            runtime: The runtime that runs the steps of this chat. Sub-agents keep their own.
            chat_id: Your own id for the chat: 1 to 64 letters, digits, "_" and "-".
        """
        options = _options(locals())
        return await self._collect(self._begin(input, options))

    @overload
    def chat_stream(
        self,
        input: Input | None,
        *,
        conversation: Conversation | str | None = None,
        deps: DepsT | None = None,
        state: dict[str, Any] | None = None,
        hooks: HooksArgument | None = None,
        only_hooks: HooksArgument | None = None,
        model: Model | str | None = None,
        system: SystemText = None,
        tools: Iterable[ToolLike] | None = None,
        settings: Settings | None = None,
        limits: Limits | None = None,
        approver: Approver | UnsetType | None = UNSET,
        output: type[E],
        output_retries: int | None = None,
        output_validators: Iterable[OutputValidator] | None = None,
        release: Release = "live",
        runtime: Runtime | None = None,
        chat_id: str | None = None,
    ) -> ChatStream[E]: ...
    @overload
    def chat_stream(
        self,
        input: Input | None,
        *,
        conversation: Conversation | str | None = None,
        deps: DepsT | None = None,
        state: dict[str, Any] | None = None,
        hooks: HooksArgument | None = None,
        only_hooks: HooksArgument | None = None,
        model: Model | str | None = None,
        system: SystemText = None,
        tools: Iterable[ToolLike] | None = None,
        settings: Settings | None = None,
        limits: Limits | None = None,
        approver: Approver | UnsetType | None = UNSET,
        output: None = None,
        output_retries: int | None = None,
        output_validators: Iterable[OutputValidator] | None = None,
        release: Release = "live",
        runtime: Runtime | None = None,
        chat_id: str | None = None,
    ) -> ChatStream[OutT]: ...
    @overload
    def chat_stream(
        self,
        input: Input | None,
        *,
        conversation: Conversation | str | None = None,
        deps: DepsT | None = None,
        state: dict[str, Any] | None = None,
        hooks: HooksArgument | None = None,
        only_hooks: HooksArgument | None = None,
        model: Model | str | None = None,
        system: SystemText = None,
        tools: Iterable[ToolLike] | None = None,
        settings: Settings | None = None,
        limits: Limits | None = None,
        approver: Approver | UnsetType | None = UNSET,
        output: object,
        output_retries: int | None = None,
        output_validators: Iterable[OutputValidator] | None = None,
        release: Release = "live",
        runtime: Runtime | None = None,
        chat_id: str | None = None,
    ) -> ChatStream[Any]: ...
    def chat_stream(
        self,
        input: Input | None,
        *,
        conversation: Conversation | str | None = None,
        deps: DepsT | None = None,
        state: dict[str, Any] | None = None,
        hooks: HooksArgument | None = None,
        only_hooks: HooksArgument | None = None,
        model: Model | str | None = None,
        system: SystemText = None,
        tools: Iterable[ToolLike] | None = None,
        settings: Settings | None = None,
        limits: Limits | None = None,
        approver: Approver | UnsetType | None = UNSET,
        output: object = None,
        output_retries: int | None = None,
        output_validators: Iterable[OutputValidator] | None = None,
        release: Release = "live",
        runtime: Runtime | None = None,
        chat_id: str | None = None,
    ) -> ChatStream[Any]:
        """Stream the events of one chat. The chat starts when the stream is entered or first read.

        Takes the arguments of `chat`.
        """
        options = _options(locals())
        return ChatStream(*self._begin(input, options))

    @overload
    async def resume(
        self,
        conversation: Conversation | str,
        answers: Mapping[str, Answer],
        *,
        deps: DepsT | None = None,
        state: dict[str, Any] | None = None,
        hooks: HooksArgument | None = None,
        only_hooks: HooksArgument | None = None,
        model: Model | str | None = None,
        system: SystemText = None,
        tools: Iterable[ToolLike] | None = None,
        settings: Settings | None = None,
        limits: Limits | None = None,
        approver: Approver | UnsetType | None = UNSET,
        output: type[E],
        output_retries: int | None = None,
        output_validators: Iterable[OutputValidator] | None = None,
        release: Release = "live",
        runtime: Runtime | None = None,
        chat_id: str | None = None,
    ) -> Response[E]: ...
    @overload
    async def resume(
        self,
        conversation: Conversation | str,
        answers: Mapping[str, Answer],
        *,
        deps: DepsT | None = None,
        state: dict[str, Any] | None = None,
        hooks: HooksArgument | None = None,
        only_hooks: HooksArgument | None = None,
        model: Model | str | None = None,
        system: SystemText = None,
        tools: Iterable[ToolLike] | None = None,
        settings: Settings | None = None,
        limits: Limits | None = None,
        approver: Approver | UnsetType | None = UNSET,
        output: None = None,
        output_retries: int | None = None,
        output_validators: Iterable[OutputValidator] | None = None,
        release: Release = "live",
        runtime: Runtime | None = None,
        chat_id: str | None = None,
    ) -> Response[OutT]: ...
    @overload
    async def resume(
        self,
        conversation: Conversation | str,
        answers: Mapping[str, Answer],
        *,
        deps: DepsT | None = None,
        state: dict[str, Any] | None = None,
        hooks: HooksArgument | None = None,
        only_hooks: HooksArgument | None = None,
        model: Model | str | None = None,
        system: SystemText = None,
        tools: Iterable[ToolLike] | None = None,
        settings: Settings | None = None,
        limits: Limits | None = None,
        approver: Approver | UnsetType | None = UNSET,
        output: object,
        output_retries: int | None = None,
        output_validators: Iterable[OutputValidator] | None = None,
        release: Release = "live",
        runtime: Runtime | None = None,
        chat_id: str | None = None,
    ) -> Response[Any]: ...
    async def resume(
        self,
        conversation: Conversation | str,
        answers: Mapping[str, Answer],
        *,
        deps: DepsT | None = None,
        state: dict[str, Any] | None = None,
        hooks: HooksArgument | None = None,
        only_hooks: HooksArgument | None = None,
        model: Model | str | None = None,
        system: SystemText = None,
        tools: Iterable[ToolLike] | None = None,
        settings: Settings | None = None,
        limits: Limits | None = None,
        approver: Approver | UnsetType | None = UNSET,
        output: object = None,
        output_retries: int | None = None,
        output_validators: Iterable[OutputValidator] | None = None,
        release: Release = "live",
        runtime: Runtime | None = None,
        chat_id: str | None = None,
    ) -> Response[Any]:
        """Answer waiting calls and continue the chat: `{approval_id: Approve() | Deny("why")}`.

        If a client runs the tool, the key is the id of the call, and the value is a ToolResult or a
        ToolFailure: `{call.id: ToolResult(value)}`.

        The other arguments are those of `chat`; pass the same arguments as in the first chat.
        Raises ApprovalError if an answer does not match a waiting call. Raises UsageError if an
        answer approves a call whose tool does not exist. After one of these errors, no tool has
        run.
        """
        options = _options(locals())
        return await self._collect(self._begin(None, options, answers))

    @overload
    def resume_stream(
        self,
        conversation: Conversation | str,
        answers: Mapping[str, Answer],
        *,
        deps: DepsT | None = None,
        state: dict[str, Any] | None = None,
        hooks: HooksArgument | None = None,
        only_hooks: HooksArgument | None = None,
        model: Model | str | None = None,
        system: SystemText = None,
        tools: Iterable[ToolLike] | None = None,
        settings: Settings | None = None,
        limits: Limits | None = None,
        approver: Approver | UnsetType | None = UNSET,
        output: type[E],
        output_retries: int | None = None,
        output_validators: Iterable[OutputValidator] | None = None,
        release: Release = "live",
        runtime: Runtime | None = None,
        chat_id: str | None = None,
    ) -> ChatStream[E]: ...
    @overload
    def resume_stream(
        self,
        conversation: Conversation | str,
        answers: Mapping[str, Answer],
        *,
        deps: DepsT | None = None,
        state: dict[str, Any] | None = None,
        hooks: HooksArgument | None = None,
        only_hooks: HooksArgument | None = None,
        model: Model | str | None = None,
        system: SystemText = None,
        tools: Iterable[ToolLike] | None = None,
        settings: Settings | None = None,
        limits: Limits | None = None,
        approver: Approver | UnsetType | None = UNSET,
        output: None = None,
        output_retries: int | None = None,
        output_validators: Iterable[OutputValidator] | None = None,
        release: Release = "live",
        runtime: Runtime | None = None,
        chat_id: str | None = None,
    ) -> ChatStream[OutT]: ...
    @overload
    def resume_stream(
        self,
        conversation: Conversation | str,
        answers: Mapping[str, Answer],
        *,
        deps: DepsT | None = None,
        state: dict[str, Any] | None = None,
        hooks: HooksArgument | None = None,
        only_hooks: HooksArgument | None = None,
        model: Model | str | None = None,
        system: SystemText = None,
        tools: Iterable[ToolLike] | None = None,
        settings: Settings | None = None,
        limits: Limits | None = None,
        approver: Approver | UnsetType | None = UNSET,
        output: object,
        output_retries: int | None = None,
        output_validators: Iterable[OutputValidator] | None = None,
        release: Release = "live",
        runtime: Runtime | None = None,
        chat_id: str | None = None,
    ) -> ChatStream[Any]: ...
    def resume_stream(
        self,
        conversation: Conversation | str,
        answers: Mapping[str, Answer],
        *,
        deps: DepsT | None = None,
        state: dict[str, Any] | None = None,
        hooks: HooksArgument | None = None,
        only_hooks: HooksArgument | None = None,
        model: Model | str | None = None,
        system: SystemText = None,
        tools: Iterable[ToolLike] | None = None,
        settings: Settings | None = None,
        limits: Limits | None = None,
        approver: Approver | UnsetType | None = UNSET,
        output: object = None,
        output_retries: int | None = None,
        output_validators: Iterable[OutputValidator] | None = None,
        release: Release = "live",
        runtime: Runtime | None = None,
        chat_id: str | None = None,
    ) -> ChatStream[Any]:
        """Answer waiting calls like `resume`, and stream the events like `chat_stream`."""
        options = _options(locals())
        return ChatStream(*self._begin(None, options, answers))

    def _begin(
        self, input: Any, options: ChatOptions, answers: Mapping[str, Answer] | None = None
    ) -> tuple[Config, ChatInput]:
        """Return the agent's configuration for this chat, and the chat's input."""
        raise NotImplementedError

    async def _collect(self, chat: tuple[Config, ChatInput]) -> Response[Any]:
        supervisor = Supervisor(new_chat(*chat, None), None)
        supervisor.start()
        return await supervisor.collect()
