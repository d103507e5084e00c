"""The ways into a chat, which every agent has: `chat`, `chat_stream`, `resume`, `resume_stream`.

Each keyword is spelled out where an editor and `help()` show it, which makes the file long: each
method has a signature for each way to say `output=`, and one for real.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar, overload

from msgspec import UNSET, UnsetType

from hookline._base.input import Input
from hookline._base.returns import Decision, OutT, Response
from hookline._base.run import DepsT
from hookline._chat.config import (
    Approver,
    Config,
    Given,
    Limits,
    OutputValidator,
    Release,
    SystemText,
    Task,
)
from hookline._chat.state import new_chat
from hookline._chat.stream import ChatStream
from hookline._chat.supervisor import Supervisor
from hookline._hooks.declared import HooksArgument
from hookline._model.model import Model, Settings
from hookline._model.tool import ToolLike
from hookline._talk.conversation import Conversation

E = TypeVar("E")


class Chats(Generic[DepsT, OutT]):
    """What an agent can be asked for."""

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
        chat_id: str | None = None,
    ) -> Response[Any]:
        """Run one chat and give its response: `chat_stream`, collected.

        Raises what ended the chat: a hook's, tool wrapper's or model's own exception,
        MaxStepsError, OutputError, ChatAbortedError. Raises ConversationBusyError, UsageError or
        ScopeError before anything has happened.

        Args:
            input: What the user says: text, a UserMessage, or a list of parts; None to go on from
                a conversation whose last message is a user's or a tool's.
            conversation: A Conversation, or the id of one in the agent's store; without one nothing
                is remembered.
            deps: What hooks and tools get as `run.deps`.
            state: The dict that becomes `run.state`.
            hooks: Hooks of this chat, added to the agent's.
            only_hooks: Hooks of this chat in place of the agent's declared ones, except those that
                are `required`.
            model: Asked in place of the agent's: a Model, or the name of one.
            system: The system text in place of the agent's, or a function of the run.
            tools: Tools added for this chat, as the scope `chat`.
            settings: How the model is to answer; changes the fields that it names.
            limits: Bounds of this chat; changes the fields that it names.
            approver: Who is asked where a hook returns Ask, in place of the agent's; None for
                nobody, so that the question waits in the conversation.
            output: The type of the answer, which is then `response.output`; `str` for plain text
                where the agent has another one.
            output_retries: How often the model may correct an answer that does not fit.
            output_validators: Functions that are given the answer, and may raise ValueError to tell
                the model what is wrong with it.
            release: "live" shows text as it comes, "response" once its hooks have passed it.
            chat_id: The chat's id, if you choose it: 1 to 64 letters, digits, "_" and "-".
        """
        given = Given(
            conversation=conversation,
            deps=deps,
            state=state,
            hooks=hooks,
            only_hooks=only_hooks,
            model=model,
            system=system,
            tools=tools,
            settings=settings,
            limits=limits,
            approver=approver,
            output=output,
            output_retries=output_retries,
            output_validators=output_validators,
            release=release,
            chat_id=chat_id,
        )
        return await self._collect(self._begin(input, given))

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
        chat_id: str | None = None,
    ) -> ChatStream[Any]:
        """The events of one chat as they happen. Nothing runs before it is entered or read.

        It takes what `chat` takes.
        """
        given = Given(
            conversation=conversation,
            deps=deps,
            state=state,
            hooks=hooks,
            only_hooks=only_hooks,
            model=model,
            system=system,
            tools=tools,
            settings=settings,
            limits=limits,
            approver=approver,
            output=output,
            output_retries=output_retries,
            output_validators=output_validators,
            release=release,
            chat_id=chat_id,
        )
        return ChatStream(*self._begin(input, given))

    @overload
    async def resume(
        self,
        conversation: Conversation | str,
        answers: Mapping[str, Decision],
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
        chat_id: str | None = None,
    ) -> Response[E]: ...
    @overload
    async def resume(
        self,
        conversation: Conversation | str,
        answers: Mapping[str, Decision],
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
        chat_id: str | None = None,
    ) -> Response[OutT]: ...
    @overload
    async def resume(
        self,
        conversation: Conversation | str,
        answers: Mapping[str, Decision],
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
        chat_id: str | None = None,
    ) -> Response[Any]: ...
    async def resume(
        self,
        conversation: Conversation | str,
        answers: Mapping[str, Decision],
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
        chat_id: str | None = None,
    ) -> Response[Any]:
        """Go on with calls that waited: `{approval_id: Approve() | Deny("why")}`.

        It takes what `chat` takes; what the first chat was given is given again. Raises
        ApprovalError, with nothing run, when an answer fits nothing that waits, and UsageError when
        there is no tool for a call that an answer approves.
        """
        given = Given(
            conversation=conversation,
            deps=deps,
            state=state,
            hooks=hooks,
            only_hooks=only_hooks,
            model=model,
            system=system,
            tools=tools,
            settings=settings,
            limits=limits,
            approver=approver,
            output=output,
            output_retries=output_retries,
            output_validators=output_validators,
            release=release,
            chat_id=chat_id,
        )
        return await self._collect(self._begin(None, given, answers))

    @overload
    def resume_stream(
        self,
        conversation: Conversation | str,
        answers: Mapping[str, Decision],
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
        chat_id: str | None = None,
    ) -> ChatStream[E]: ...
    @overload
    def resume_stream(
        self,
        conversation: Conversation | str,
        answers: Mapping[str, Decision],
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
        chat_id: str | None = None,
    ) -> ChatStream[OutT]: ...
    @overload
    def resume_stream(
        self,
        conversation: Conversation | str,
        answers: Mapping[str, Decision],
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
        chat_id: str | None = None,
    ) -> ChatStream[Any]: ...
    def resume_stream(
        self,
        conversation: Conversation | str,
        answers: Mapping[str, Decision],
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
        chat_id: str | None = None,
    ) -> ChatStream[Any]:
        """`resume`, with its events as they happen: what `chat_stream` is to `chat`."""
        given = Given(
            conversation=conversation,
            deps=deps,
            state=state,
            hooks=hooks,
            only_hooks=only_hooks,
            model=model,
            system=system,
            tools=tools,
            settings=settings,
            limits=limits,
            approver=approver,
            output=output,
            output_retries=output_retries,
            output_validators=output_validators,
            release=release,
            chat_id=chat_id,
        )
        return ChatStream(*self._begin(None, given, answers))

    def _begin(
        self, input: Any, given: Given, answers: Mapping[str, Decision] | None = None
    ) -> tuple[Config, Task]:
        """What the chat is asked for, and the agent's configuration as this chat has it."""
        raise NotImplementedError

    async def _collect(self, asked: tuple[Config, Task]) -> Response[Any]:
        supervisor = Supervisor(new_chat(*asked, None), None)
        supervisor.start()
        return await supervisor.collect()
