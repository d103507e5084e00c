"""Every exception that hookline raises, in one tree, grouped by who is responsible.

    HooklineError
    ├── UsageError               the caller: invalid arguments, or a call at the wrong time
    │   ├── UnknownHookError         no hook point of that name
    │   ├── HookOptionError          add_hook() options that do not fit the point
    │   ├── DiscoveryError           an unsafe hooks folder, or required hooks that fail to load
    │   ├── ToolDefinitionError      a tool whose name, signature or schema cannot work
    │   ├── ScopeError               a scope or tool name that is taken, or an unknown scope
    │   ├── HistoryError             a history that no provider would accept
    │   ├── ConversationBusyError    a second chat on a conversation that is in use
    │   ├── ConversationConflictError  the stored conversation has moved on
    │   ├── ApprovalError            an answer that fits no question: unknown, late, reused, foreign
    │   └── StreamStateError         a second reader, another loop, a result read too early
    ├── HookError                a hook: it broke a rule of its point
    │   ├── HookReturnError          a value of a type that the point does not take
    │   └── HookTimeoutError         a hook that took longer than its `timeout=`
    ├── ToolCallError            a tool call; reported to the model, never to the caller
    │   ├── UnknownToolError, DisabledToolError, ToolArgumentsError, ToolTimeoutError
    │   ├── ToolLimitError           more calls in one step than the agent allows
    │   └── ToolDenied               raised by a tool or by preToolCall to refuse a call
    ├── StopChat                 raised by a tool or a response hook: end the chat gracefully
    ├── ModelError               a model or its service: it failed, or broke the protocol
    │   ├── AuthenticationError      the service rejects the key, or rejects it for this model
    │   ├── RateLimitError           too many requests or tokens; `retry_after` if known
    │   ├── OverloadedError          the service cannot answer now (500, 503, 529)
    │   ├── ContextTooLongError      the messages do not fit into the model's context
    │   ├── ContentRefusedError      the service's filter refuses the request or the answer
    │   ├── BadRequestError          the service refuses this request
    │   ├── ModelConnectionError     a connection that failed or broke off
    │   ├── IdleTimeoutError         a service that was silent, or took too long
    │   └── MalformedStreamError     an answer that is cut off, or not in the service's format
    ├── OutputError              the answer does not fit the `output=` type, even after retries
    ├── StoreError               a store: it cannot be read or written
    ├── QueueFullError           a queue of durable chats: it takes no more chats now
    ├── JournalError             the record of a durable chat does not fit this code
    ├── RemoteChatError          a chat that ran in another process has failed
    ├── MaxStepsError            the chat reached its limit of model calls
    ├── ChatAbortedError         the chat was aborted; has `reason` and `partial`
    ├── StreamInterruptedError   other code cancelled the run: the answer is cut off
    └── SubscriptionOverflowError  a subscriber fell too far behind

These never replace an exception that a user's own tool, hook or model raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class HooklineError(Exception):
    """The base class of all exceptions that hookline raises.

    What to do: catch this class to handle every failure of hookline in one place. Exceptions of
    your own hooks, tools and models do not derive from this class.
    """


# ── the caller ──────────────────────────────────────────────────────────────────────────────


class UsageError(HooklineError):
    """The call is not valid; nothing was changed.

    What to do: change the call as the text says; the same call will fail again.
    """


def closest(name: object, names: Iterable[str]) -> tuple[str, ...]:
    """Return the known names that `name` was probably meant to be."""
    import difflib  # only here: it costs a millisecond of every import

    names = list(names)
    plain = str(name).replace("_", "").lower()  # pre_tool_call is preToolCall
    same = tuple(candidate for candidate in names if candidate.replace("_", "").lower() == plain)
    return same or tuple(difflib.get_close_matches(str(name), names, n=3, cutoff=0.5))


def did_you_mean(names: Iterable[str]) -> str:
    """Return a hint in parentheses, or an empty string if there are no names."""
    text = " or ".join(map(repr, names))
    return f" (did you mean {text}?)" if text else ""


class UnknownHookError(UsageError):
    """There is no hook point or declared hook with this name.

    What to do: use one of the names in `closest`, if there are any. The page "The hook points" of
    the documentation lists all points. `name` is the name that was used.
    """

    def __init__(self, name: object, names: Iterable[str], what: str = "hook point") -> None:
        self.name = name
        names = list(names)
        self.closest = closest(name, names)
        hint = did_you_mean(self.closest)
        if what == "hook point":
            help_ = (
                '. The page "The hook points" of the documentation lists all points; for your '
                "own point, pass a class that derives from Observer, Interceptor or Wrapper"
            )
        else:
            listing = ", ".join(sorted(map(str, names))) or "none"
            help_ = f". Use one of the known names ({listing}), or pass the definition itself"
        super().__init__(f"there is no {what} {name!r}{hint}{help_}")


class HookOptionError(UsageError):
    """A hook, or an option of `add_hook`, does not fit the point.

    What to do: change the option or the hook as the text says. `point` and `hook` are the names of
    the point and the hook.
    """

    def __init__(self, point: str, hook: str, problem: str) -> None:
        self.point = point
        self.hook = hook
        super().__init__(f"hook {hook!r} cannot be added at {point}: {problem}")


class DiscoveryError(UsageError):
    """The hooks folder cannot be used, or required hooks cannot be loaded.

    What to do: fix the folder or the file that the text names. Do not start the program without the
    hooks.
    """


class ToolDefinitionError(UsageError):
    """A model cannot call this tool, because the tool's name, signature or schema is wrong.

    What to do: change the function, its type hints or the options as the text says. `tool` is the
    tool's name.
    """

    def __init__(self, tool: str, problem: str) -> None:
        self.tool = tool
        super().__init__(f"tool {tool!r}: {problem}")


class ScopeError(UsageError):
    """A scope cannot be registered or found; no scope was changed.

    What to do: choose another label or tool name, or remove the scope that uses the name.
    """


class HistoryError(UsageError):
    """The history breaks the pairing of calls and results, or repeats a message.

    What to do: pass the messages through `repair_history`, which fixes them and reports each fix.
    You can also fix the code that makes the messages. `problems` describes each problem in one
    sentence.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        listing = "\n  - ".join(self.problems)
        super().__init__(
            f"the history is not valid:\n  - {listing}\n"
            "Pass it through repair_history(messages), which fixes it and reports each fix"
        )


class ConversationBusyError(UsageError):
    """Another chat is running in the conversation; the new chat changed nothing.

    What to do: wait for the other chat, abort it, or use another conversation. `conversation_id` is
    the id of the conversation, and `chat_id` is the id of the other chat. After a crash, the
    conversation becomes free when its lease expires.
    """

    def __init__(self, conversation_id: str, chat_id: str | None, *, waits: bool = False) -> None:
        self.conversation_id = conversation_id
        self.chat_id = chat_id
        state, what = "is running chat", "wait for it"
        if waits:
            state = "holds a question of durable chat"
            what = f"answer it with the engine's client: client.answer({chat_id!r}, …)"
        super().__init__(
            f"conversation {conversation_id!r} {state} {chat_id!r}; "
            f"{what}, abort it, or use another conversation"
        )


class ConversationConflictError(UsageError):
    """Another writer has changed the stored conversation, or has taken it over.

    What to do: open `conversation_id` again and continue from its current state. `expected` and
    `found` are version numbers; each write to a conversation increments the version.
    """

    def __init__(self, conversation_id: str, expected: int, found: int | None) -> None:
        self.conversation_id = conversation_id
        self.expected = expected
        self.found = found
        now = "no longer exists" if found is None else f"is at version {found}"
        if found == expected:
            now = "has been taken over by another chat"
        super().__init__(
            f"conversation {conversation_id!r} was expected at version {expected}, but it {now}; "
            "nothing was written; open the conversation again"
        )


class ApprovalError(UsageError):
    """An answer does not match a waiting question or call; nothing was run.

    What to do: look up the calls and questions that wait now (`conversation.pending`,
    `conversation.client_calls`, `store.pending()`) and answer them. If a question has expired,
    start a new chat.
    """


class StreamStateError(UsageError):
    """The stream already has a reader, belongs to another event loop, or has not ended yet.

    What to do: read a stream once, in one task and one event loop, and read it to the end before
    you use its `response`. For more readers, use `agent.subscribe()`.
    """


# ── hooks ───────────────────────────────────────────────────────────────────────────────────


class HookError(HooklineError):
    """A hook broke a rule; for example, it called `proceed()` too late.

    What to do: fix the hook that the text names.
    """


class HookReturnError(HookError):
    """A hook returned a value of a type that its point does not accept.

    What to do: return one of the types that the text lists. `point` and `hook` name the hook;
    `value_type` is the type of the returned value.
    """

    def __init__(self, point: str, hook: str, value: object, may_return: str) -> None:
        self.point = point
        self.hook = hook
        self.value_type = type(value)
        super().__init__(
            f"hook {hook!r} at {point} returned a value of type {type(value).__qualname__}; "
            f"return one of the types that this point accepts: {may_return}"
        )


class HookTimeoutError(HookError, TimeoutError):
    """A hook took longer than its `timeout=`.

    What to do: make the hook faster, increase its `timeout=`, or add the hook with `on_error="log"`
    if the chat may continue without it. `point` and `hook` name the hook; `seconds` is the time
    limit.
    """

    def __init__(self, point: str, hook: str, seconds: float) -> None:
        self.point = point
        self.hook = hook
        self.seconds = seconds
        super().__init__(
            f"hook {hook!r} at {point} took longer than its timeout of {seconds:g} s; make it "
            "faster, raise timeout=, or add the hook with on_error='log' to continue without it"
        )


# ── tool calls: reported to the model ───────────────────────────────────────────────────────


class ToolCallError(HooklineError):
    """A tool call failed; the model sees the error and the chat continues.

    What to do: usually nothing, since the model can react to the error. A hook at
    `onToolCallError` sees each error and may change what the model sees.
    """


def _short(name: str) -> str:
    """Shorten a tool's name for an error; a model may send a very long one."""
    return name if len(name) <= 64 else f"{name[:64]}…"


class UnknownToolError(ToolCallError):
    """The model called a tool that does not exist.

    What to do: usually nothing. If the error happens often, describe in the system text what each
    tool is for. `tool` is the name that the model used.
    """

    def __init__(self, tool: str, tools: Iterable[str]) -> None:
        self.tool = tool
        names = ", ".join(sorted(tools))
        help_ = f"use one of these: {names}" if names else "continue without tools: none is offered"
        super().__init__(f"there is no tool {_short(tool)!r}; {help_}")


class DisabledToolError(ToolCallError):
    """The tool exists but was not offered in this step, or is disabled.

    What to do: usually nothing. If the tool should be available, enable `tool` or its scope, or
    change the hook that removed the tool.
    """

    def __init__(self, tool: str) -> None:
        self.tool = tool
        super().__init__(
            f"tool {_short(tool)!r} is not available in this step; continue without it"
        )


class ToolArgumentsError(ToolCallError):
    """The arguments do not fit the tool's schema; `issues` describes each problem.

    What to do: usually nothing, since the model may try again. If the error happens often, describe
    the parameters of `tool` better, or change the arguments in a hook at `preToolCall`. `raw` is
    the text of the arguments if that text is not a JSON object.
    """

    def __init__(self, tool: str, issues: Sequence[str], raw: str | None = None) -> None:
        self.tool = tool
        self.issues = tuple(issues)
        self.raw = raw
        super().__init__(
            f"invalid arguments for tool {_short(tool)!r}: {'; '.join(self.issues)}. "
            "Fix them and call the tool again"
        )


class ToolTimeoutError(ToolCallError, TimeoutError):
    """The tool ran longer than its time limit and was cancelled.

    What to do: increase the tool's `timeout=` or `Limits.tool_timeout`, or make the tool do less in
    one call. `tool` is the tool's name; `seconds` is the time limit.
    """

    def __init__(self, tool: str, seconds: float) -> None:
        self.tool = tool
        self.seconds = seconds
        super().__init__(
            f"tool {tool!r} ran longer than {seconds:g} s and was cancelled; ask it to do less"
        )


class ToolLimitError(ToolCallError):
    """The model made more calls in one step than the agent allows.

    What to do: usually nothing, since the model may call again. If the error happens often,
    increase `Limits.tool_calls`. `tool` is the name of the tool that was not run; `limit` is the
    allowed number of calls.
    """

    def __init__(self, tool: str, limit: int) -> None:
        self.tool = tool
        self.limit = limit
        super().__init__(
            f"{_short(tool)!r} was not run: a step may have at most {limit} tool calls; "
            "call it again in the next step"
        )


class ToolDenied(ToolCallError):
    """Raise this in a tool, or in a hook at preToolCall or aroundToolCall, to refuse the call.

    What to do: in the text, tell the model why, and what the model may do instead.
    """


class StopChat(HooklineError):
    """Raise this exception in a tool to end the chat gracefully after the current step.

    A wrapper at `aroundToolCall` may raise it in place of the tool. A hook at `aroundRequest` or
    `onResponse` may also raise StopChat. There, StopChat discards the answer, retracts text that
    was already shown, and ends the chat at once. `text` is sent to the user as an assistant
    message.
    What to do: nothing; `response.stop_reason` is the `reason`.
    """

    def __init__(self, reason: str, text: str | None = None) -> None:
        self.reason = reason
        self.text = text
        super().__init__(reason)


# ── the model, and how a chat can end ───────────────────────────────────────────────────────


class ModelError(HooklineError):
    """A model failed, or its answer broke the protocol.

    What to do: if `retryable` is true, try again. If `retry_after` is set, first wait that number
    of seconds. `hookline.hooks.retry` does both. If `retryable` is false, change the request or the
    adapter. `provider`, `status` (HTTP), `code` (the provider's own code) and `request_id` are None
    if unknown. The texts of these errors never contain an API key.
    """

    retryable: bool = False
    """True if the same request may succeed later."""

    def __init__(
        self,
        message: str,
        *,
        provider: str | None = None,
        status: int | None = None,
        code: str | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
        retryable: bool | None = None,
    ) -> None:
        self.provider = provider
        self.status = status
        self.code = code
        self.request_id = request_id
        self.retry_after = retry_after
        if retryable is not None:
            self.retryable = retryable
        super().__init__(message)


class AuthenticationError(ModelError):
    """The service rejects the key, or the key has no access to this model.

    What to do: check the key, its account, and the name of the model.
    """


class RateLimitError(ModelError):
    """The service received too many requests or tokens.

    What to do: wait and try again, send less at a time, or check the account's limits. If the
    account has no quota left, the error is not `retryable`.
    """

    retryable = True


class OverloadedError(ModelError):
    """The service cannot answer now, because it is overloaded or down, or has failed.

    What to do: try again later, or let `hookline.hooks.fallback` call another model.
    """

    retryable = True


class ContextTooLongError(ModelError):
    """The messages exceed the model's context.

    What to do: send less (`hookline.hooks.window`, `truncate`), or use a model with a larger
    context.
    """


class ContentRefusedError(ModelError):
    """The service's content filter refused the request, or withheld the answer.

    What to do: change the request; the same request will be refused again.
    """


class BadRequestError(ModelError):
    """The service does not support the model, a setting or a part of this request.

    What to do: change the model's name, the setting or the part that the text names.
    """


class ModelConnectionError(ModelError):
    """The service could not be reached, or the connection was lost.

    What to do: try again. If the service still cannot be reached, check the address, the network
    and the proxy.
    """

    retryable = True


class IdleTimeoutError(ModelError, TimeoutError):
    """The service sent no event for longer than the adapter's `idle_timeout`, or the call took
    longer than `Limits.request_seconds`.

    What to do: try again, or increase the limit for models that think for a long time.
    """

    retryable = True


class MalformedStreamError(ModelError):
    """The answer is cut off, or is not in the service's format.

    What to do: try again. If the error happens every time, check the address and any proxy in
    between.
    """

    retryable = True


class OutputError(HooklineError):
    """The answer does not fit `output=`, and the model has no tries left to correct it.

    What to do: send the message again, increase `output_retries=`, simplify the type, or change the
    answer in a hook at `onResponse`. `type_name` is the name of the type, `issues` lists the
    problems, and `text` is the model's answer.
    """

    def __init__(self, type_name: str, issues: Sequence[str], text: str) -> None:
        self.type_name = type_name
        self.issues = tuple(issues)
        self.text = text
        super().__init__(
            f"the answer does not fit output={type_name}: {'; '.join(self.issues)}. Ask again, "
            "raise output_retries=, use a simpler type, or change the answer in a hook at "
            "onResponse"
        )


class StoreError(HooklineError):
    """A store cannot be read or written; the text says why, and what to do.

    What to do: fix the store as the text says, and continue from the stored state. A failed write
    changed nothing. If this is uncertain, the text says so.
    """


class QueueFullError(HooklineError):
    """A durable chat was not started: as many chats wait for a worker as the queue may have.

    What to do: try again later, tell the user that the service is busy, or start more workers.
    `limit` is the client's `max_queued`.
    """

    def __init__(self, chat_id: str, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"chat {chat_id!r} was not started: max_queued={limit} chats wait for a worker; try "
            "again later, or start more workers"
        )


class JournalError(HooklineError):
    """The journal of a durable chat does not fit this code; the chat was not changed.

    What to do: run the versions of hookline and of your agent that wrote the journal, or restore
    the journal from a backup. `chat_id` is the id of the chat. The chat continues when a worker
    with the right versions runs it. `why` names the step or the format, and has no content.
    """

    def __init__(self, chat_id: str, why: str) -> None:
        self.chat_id = chat_id
        self.why = why
        super().__init__(
            f"chat {chat_id!r} cannot continue: {why}. Run the version of the code that wrote the "
            "log, or restore the log from a backup"
        )


class RemoteChatError(HooklineError):
    """A chat that ran in another process has failed.

    What to do: handle the original error. `chat_id` is the id of the chat, `type` the name of the
    error's class, and `message` the error's text.
    """

    def __init__(self, chat_id: str, type: str, message: str) -> None:
        self.chat_id = chat_id
        self.type = type
        self.message = message
        super().__init__(
            f"chat {chat_id!r} failed in another process with {type}: {message}; see the log of "
            "its worker"
        )


class MaxStepsError(HooklineError):
    """The chat did not end within the allowed number of model calls.

    What to do: increase `Limits.steps`, or end the chat gracefully with a hook that returns Stop
    (`hookline.hooks.budget`). `limit` is the allowed number of model calls.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"the chat had not ended after {limit} model calls (Limits.steps={limit}); "
            "raise the limit, or end the chat gracefully with a hook that returns Stop"
        )


class ChatAbortedError(HooklineError):
    """The chat was aborted. `partial` has the messages that were kept.

    What to do: nothing if you aborted the chat. `reason` is the reason that was passed to
    `abort()`.
    """

    def __init__(self, reason: str | None, partial: Sequence[Any] = ()) -> None:
        self.reason = reason
        self.partial = tuple(partial)
        super().__init__(
            f"the chat was aborted: {reason or 'no reason given'}; "
            "see partial for the messages that were kept"
        )


class StreamInterruptedError(HooklineError):
    """Other code cancelled the run, so the streamed text is not the whole answer.

    What to do: send the message again; do not show the partial text as an answer.
    """

    def __init__(self) -> None:
        super().__init__(
            "the run behind this stream was cancelled by other code, and the answer is cut off; "
            "send the message again, and find out what cancelled the task"
        )


class SubscriptionOverflowError(HooklineError):
    """A subscriber fell too far behind, so its subscription was closed.

    What to do: read faster, or subscribe with a larger `size=` or with `overflow="drop_oldest"`.
    `limit` is the `size` of the subscription.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"the subscription was closed because it was {limit} events behind. Read faster, or "
            "subscribe with a larger size= or with overflow='drop_oldest'"
        )
