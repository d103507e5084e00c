"""Every exception that hookline raises, in one tree, branched by whose fault it is.

    HooklineError
    ├── UsageError               the caller: wrong arguments, wrong moment
    │   ├── UnknownHookError         no hook point of that name
    │   ├── HookOptionError          add_hook() options that do not fit the point
    │   ├── DiscoveryError           a folder of hooks that is not safe, required hooks that fail
    │   ├── ToolDefinitionError      a tool whose name, signature or schema cannot work
    │   ├── ScopeError               a scope or tool name that is taken, a scope that is gone
    │   ├── HistoryError             a history that no provider would accept
    │   ├── ConversationBusyError    a second chat on a conversation that runs one
    │   ├── ConversationConflictError  the stored conversation has moved on
    │   ├── ApprovalError            an answer to nothing: unknown, late, replayed, foreign
    │   └── StreamStateError         a second reader, another loop, a result asked too early
    ├── HookError                a hook: it failed in a way that is not its own exception
    │   ├── HookReturnError          a value of a type that the point does not take
    │   └── HookTimeoutError         it took longer than its `timeout=`
    ├── ToolCallError            a tool call; told to the model, never to the caller
    │   ├── UnknownToolError, DisabledToolError, ToolArgumentsError, ToolTimeoutError
    │   ├── ToolLimitError           more calls in one step than the agent allows
    │   └── ToolDenied               raised by a tool or by preToolCall: "not allowed, because"
    ├── StopChat                 raised by a tool or around an answer: end the chat gracefully
    ├── ModelError               a model, or the service behind it: it failed, or broke its protocol
    │   ├── AuthenticationError      the service does not take the key, or not for this model
    │   ├── RateLimitError           too many requests or tokens; `retry_after` where it was told
    │   ├── OverloadedError          the service cannot answer now (500, 503, 529)
    │   ├── ContextTooLongError      the messages do not fit into the model's context
    │   ├── ContentRefusedError      the service refuses what it was sent, or what it would say
    │   ├── BadRequestError          the service refuses the request as it stands
    │   ├── ModelConnectionError     no connection, or one that broke off
    │   ├── IdleTimeoutError         a connection on which nothing came for too long
    │   └── MalformedStreamError     an answer that is cut off, or is not the service's format
    ├── OutputError              the answer does not fit the `output=` type, also not the second one
    ├── StoreError               where conversations are kept: it cannot be read or written
    ├── JournalError             the record of a durable chat does not fit this code
    ├── RemoteChatError          a chat that ran in another process has failed
    ├── MaxStepsError            the hard limit of model calls
    ├── ChatAbortedError         the chat was aborted; has `reason` and `partial`
    ├── StreamInterruptedError   a third party cancelled the run: the answer is cut
    └── SubscriptionOverflowError  a subscriber lagged behind its bound

What a user's own tool, hook or model raises is never replaced by one of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class HooklineError(Exception):
    """The root of all that hookline raises.

    What to do: catch it where any failure of hookline's is the same to you; what your own hooks,
    tools and models raise is not among it.
    """


# ── the caller ──────────────────────────────────────────────────────────────────────────────


class UsageError(HooklineError):
    """The call cannot be carried out as it stands; nothing has been changed.

    What to do: change the call as the text says; the same call will fail again.
    """


def closest(name: object, known: Iterable[str]) -> tuple[str, ...]:
    """The known names that `name` was probably meant to be."""
    import difflib  # only here: it costs a millisecond of every import

    known = list(known)
    plain = str(name).replace("_", "").lower()  # pre_tool_call is preToolCall
    same = tuple(each for each in known if each.replace("_", "").lower() == plain)
    return same or tuple(difflib.get_close_matches(str(name), known, n=3, cutoff=0.5))


def did_you_mean(names: Iterable[str]) -> str:
    """A hint in brackets, empty without names."""
    text = " or ".join(map(repr, names))
    return f" (did you mean {text}?)" if text else ""


class UnknownHookError(UsageError):
    """There is no hook point, or no declared hook, of that name.

    What to do: use one of the names in `closest`, if one was meant; docs/hooks.md lists the points.
    `name` is what was asked for.
    """

    def __init__(self, name: object, known: Iterable[str], what: str = "hook point") -> None:
        self.name = name
        known = list(known)
        self.closest = closest(name, known)
        hint = did_you_mean(self.closest)
        help_ = (
            ". See docs/hooks.md, which lists them all; for a point of your own, pass its class, "
            "derived from Observer, Interceptor or Wrapper"
        )
        if what != "hook point":
            there = ", ".join(sorted(map(str, known))) or "none"
            help_ = f". Use one that is known ({there}), or pass the definition itself"
        super().__init__(f"there is no {what} {name!r}{hint}{help_}")


class HookOptionError(UsageError):
    """A hook or an option of `add_hook` that does not fit the point.

    What to do: change the option, or the hook, as the text says. `point` and `hook` name both.
    """

    def __init__(self, point: str, hook: str, problem: str) -> None:
        self.point = point
        self.hook = hook
        super().__init__(f"hook {hook!r} cannot be added at {point}: {problem}")


class DiscoveryError(UsageError):
    """Hooks cannot be looked for there, or some that are required cannot be loaded.

    What to do: fix the folder or the file that the text names; do not start without it.
    """


class ToolDefinitionError(UsageError):
    """A tool that no model could call: its name, signature or schema is wrong.

    What to do: change the function, its type hints or the options as the text says. `tool` is the
    tool's name.
    """

    def __init__(self, tool: str, problem: str) -> None:
        self.tool = tool
        super().__init__(f"tool {tool!r}: {problem}")


class ScopeError(UsageError):
    """A scope cannot be registered or found; the registry is unchanged.

    What to do: choose another label or tool name, or remove the scope that has it.
    """


class HistoryError(UsageError):
    """A history that breaks the pairing of calls and results, or repeats a message.

    What to do: pass the messages through `repair_history`, which fixes them and says how; or fix
    where they come from. `problems` has a sentence for each.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        listed = "\n  - ".join(self.problems)
        super().__init__(
            f"the history is not valid:\n  - {listed}\n"
            "Pass it through repair_history(messages), which fixes it and reports what it did"
        )


class ConversationBusyError(UsageError):
    """The conversation already runs a chat; this one changed nothing.

    What to do: wait for the other chat, abort it, or use another conversation. `conversation_id`
    and `chat_id` name the two; after a crash the conversation is free when the lease has run out.
    """

    def __init__(self, conversation_id: str, chat_id: str | None, *, waits: bool = False) -> None:
        self.conversation_id = conversation_id
        self.chat_id = chat_id
        state, what = "is running chat", "wait for it"
        if waits:
            state = "holds a question of durable chat"
            what = f"answer it with its engine's client, client.answer({chat_id!r}, …)"
        super().__init__(
            f"conversation {conversation_id!r} {state} {chat_id!r}; "
            f"{what}, abort it, or use another conversation"
        )


class ConversationConflictError(UsageError):
    """Somebody else has written to the stored conversation, or has taken it over.

    What to do: open `conversation_id` again and go on from what stands there now. `expected` and
    `found` are versions: each thing written to a conversation counts one up.
    """

    def __init__(self, conversation_id: str, expected: int, found: int | None) -> None:
        self.conversation_id = conversation_id
        self.expected = expected
        self.found = found
        now = "is gone" if found is None else f"is at version {found}"
        if found == expected:
            now = "has been taken over by another chat"
        super().__init__(
            f"conversation {conversation_id!r} was expected at version {expected} and {now}: "
            "somebody else wrote to it, and nothing of this was written; open it again"
        )


class ApprovalError(UsageError):
    """An approval answer that fits nothing that is pending; nothing was run.

    What to do: look at what waits now (`conversation.pending`, `store.pending()`) and answer that;
    begin a new chat where a question has expired.
    """


class StreamStateError(UsageError):
    """The stream cannot do that now: a second reader, another loop, too early.

    What to do: read a stream once, in one task and event loop, and to its end before its
    `response` is asked for; `agent.subscribe()` serves further readers.
    """


# ── hooks ───────────────────────────────────────────────────────────────────────────────────


class HookError(HooklineError):
    """A hook failed in a way that is not an exception of its own.

    What to do: fix the hook that the text names.
    """


class HookReturnError(HookError):
    """A hook returned a value of a type that its point does not take.

    What to do: return one of the types that the text lists. `point`, `hook` and `value_type` tell
    where and what.
    """

    def __init__(self, point: str, hook: str, value: object, allowed: str) -> None:
        self.point = point
        self.hook = hook
        self.value_type = type(value)
        super().__init__(
            f"hook {hook!r} at {point} returned a {type(value).__qualname__}; "
            f"return what this point takes: {allowed}"
        )


class HookTimeoutError(HookError, TimeoutError):
    """A hook took longer than the `timeout=` it was added with.

    What to do: make it faster, give it more time, or add it with `on_error="log"` where the chat
    may go on without it. `point`, `hook` and `seconds` tell which and how long.
    """

    def __init__(self, point: str, hook: str, seconds: float) -> None:
        self.point = point
        self.hook = hook
        self.seconds = seconds
        super().__init__(
            f"hook {hook!r} at {point} took longer than its timeout of {seconds:g} s; make it "
            "faster, raise timeout=, or add it with on_error='log' to go on without it"
        )


# ── tool calls: told to the model ───────────────────────────────────────────────────────────


class ToolCallError(HooklineError):
    """A tool call failed; the model is told and the chat goes on.

    What to do: nothing, as a rule, since the model has its turn; a hook at `onToolCallError` sees
    each and may answer otherwise.
    """


def _short(name: str) -> str:
    """A tool's name as it is told back: the model may have written a whole page there."""
    return name if len(name) <= 64 else f"{name[:64]}…"


class UnknownToolError(ToolCallError):
    """The model called a tool that does not exist.

    What to do: nothing; where it happens often, say in the system text what tools are for. `tool`
    is the name that it used.
    """

    def __init__(self, tool: str, offered: Iterable[str]) -> None:
        self.tool = tool
        names = ", ".join(sorted(offered))
        help_ = f"use one of these: {names}" if names else "go on without tools: none is offered"
        super().__init__(f"there is no tool {_short(tool)!r}; {help_}")


class DisabledToolError(ToolCallError):
    """The tool exists but was not offered in this step, or is switched off.

    What to do: nothing; or switch on `tool`, its scope or the hook that took it away.
    """

    def __init__(self, tool: str) -> None:
        self.tool = tool
        super().__init__(f"tool {_short(tool)!r} is not available in this step; go on without it")


class ToolArgumentsError(ToolCallError):
    """The arguments do not fit the tool's schema; `issues` names every one that does not.

    What to do: nothing, the model may try again; or describe the parameters of `tool` better, or
    change the arguments in a hook at `preToolCall`. `raw` is the text where that was not a JSON
    object.
    """

    def __init__(self, tool: str, issues: Sequence[str], raw: str | None = None) -> None:
        self.tool = tool
        self.issues = tuple(issues)
        self.raw = raw
        super().__init__(
            f"bad arguments for tool {_short(tool)!r}: {'; '.join(self.issues)}. "
            "Mend them and call it again"
        )


class ToolTimeoutError(ToolCallError, TimeoutError):
    """The tool ran longer than its time limit and was cancelled.

    What to do: raise its `timeout=` or `Limits.tool_timeout`, or make the tool do less at a time.
    `tool` and `seconds` tell which and how long.
    """

    def __init__(self, tool: str, seconds: float) -> None:
        self.tool = tool
        self.seconds = seconds
        super().__init__(
            f"tool {tool!r} ran longer than {seconds:g} s and was cancelled; ask it for less"
        )


class ToolLimitError(ToolCallError):
    """The model asked for more calls in one step than the agent allows.

    What to do: nothing, the model may ask again; or raise `Limits.tool_calls`. `tool` and `limit`
    tell which and how many.
    """

    def __init__(self, tool: str, limit: int) -> None:
        self.tool = tool
        self.limit = limit
        super().__init__(
            f"{_short(tool)!r} was not run: a step may have at most {limit} tool calls; "
            "call it again in the next one"
        )


class ToolDenied(ToolCallError):
    """Raise it in a tool, at preToolCall or at aroundToolCall to refuse the call and say why.

    What to do: say in its text what the model may do instead.
    """


class StopChat(HooklineError):
    """Raise it in a tool to end the chat gracefully after this step; `reason` is its result.

    A hook at `aroundRequest` or `onResponse` may raise it too: the answer is not kept, what was
    shown of it is taken back, and the chat ends at once. `text` is said to the user.
    What to do: nothing; `response.stop_reason` has the reason.
    """

    def __init__(self, reason: str, text: str | None = None) -> None:
        self.reason = reason
        self.text = text
        super().__init__(reason)


# ── the model, and how a chat can end ───────────────────────────────────────────────────────


class ModelError(HooklineError):
    """A model failed, or answered with something that is not its protocol.

    What to do: try again where `retryable` says so, in `retry_after` seconds where the service has
    said so (`hookline.hooks.retry` does both); otherwise change the request or the adapter.
    `provider`, `status` (HTTP), `code` (the provider's own word) and `request_id` are None where
    there are none. No text of these errors holds a key.
    """

    retryable: bool = False
    """True where the same request may go well later."""

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
    """The service does not take the key, or the key may not use this model.

    What to do: check the key, the account it belongs to, and the name of the model.
    """


class RateLimitError(ModelError):
    """Too many requests or tokens. Not `retryable` where the account has nothing left.

    What to do: wait and try again, send less at a time, or look at the account's limits.
    """

    retryable = True


class OverloadedError(ModelError):
    """The service cannot answer now: it is overloaded, down, or failed.

    What to do: try again later, or let `hookline.hooks.fallback` ask another model.
    """

    retryable = True


class ContextTooLongError(ModelError):
    """The messages do not fit into the model's context.

    What to do: send less (`hookline.hooks.window`, `truncate`), or use a model with more room.
    """


class ContentRefusedError(ModelError):
    """The service refuses what it was sent, or withholds what it would have said.

    What to do: change what is asked; the same request will be refused again.
    """


class BadRequestError(ModelError):
    """The service refuses the request as it stands: a model, setting or part that it lacks.

    What to do: change the model's name, the settings or the parts as the text says.
    """


class ModelConnectionError(ModelError):
    """The service could not be reached, or the connection broke off.

    What to do: try again; check the address, the network and the proxy where it stays away.
    """

    retryable = True


class IdleTimeoutError(ModelError, TimeoutError):
    """Nothing came from the service for longer than the adapter's `idle_timeout`.

    What to do: try again, or raise `idle_timeout=` for models that think for long.
    """

    retryable = True


class MalformedStreamError(ModelError):
    """The answer is cut off, or is not in the service's format.

    What to do: try again; where it happens each time, check the address and what stands between.
    """

    retryable = True


class OutputError(HooklineError):
    """The answer does not fit `output=`, and the model may not correct it once more.

    What to do: ask again, raise `output_retries=`, make the type simpler, or change the answer in a
    hook at `onResponse`.
    `type_name` is the type's, `issues` tells what is wrong, `text` is what the model wrote.
    """

    def __init__(self, type_name: str, issues: Sequence[str], text: str) -> None:
        self.type_name = type_name
        self.issues = tuple(issues)
        self.text = text
        super().__init__(
            f"the answer does not fit output={type_name}: {'; '.join(self.issues)}. Ask again, "
            "raise output_retries=, make the type simpler, or change the answer in a hook at "
            "onResponse"
        )


class StoreError(HooklineError):
    """A store cannot be read or written; its text says why, and what can be done.

    What to do: make the store work again as the text says, and begin again from what stands there.
    What was to be written was not, unless the text says that this is uncertain.
    """


class JournalError(HooklineError):
    """The record of a durable chat does not fit this code; the chat was left as it is.

    What to do: run the version of hookline, or of your agent, that has written it, or restore it
    from a copy. `chat_id` names the chat; a later life goes on with it.
    """

    def __init__(self, chat_id: str, why: str) -> None:
        self.chat_id = chat_id
        super().__init__(
            f"chat {chat_id!r} cannot go on: {why}. Run the code that has written its log, or "
            "restore the log from a copy"
        )


class RemoteChatError(HooklineError):
    """A chat that ran in another process has failed.

    What to do: what the error that it names asks for. `chat_id` is the chat, `type` the name of the
    error's class, and `message` its text.
    """

    def __init__(self, chat_id: str, type: str, message: str) -> None:
        self.chat_id = chat_id
        self.type = type
        self.message = message
        super().__init__(
            f"chat {chat_id!r} failed elsewhere with {type}: {message}; look at the log of its "
            "worker"
        )


class MaxStepsError(HooklineError):
    """The chat made its last allowed model call and still was not done.

    What to do: raise `Limits.steps`, or end the chat gracefully with a hook that returns Stop
    (`hookline.hooks.budget`). `limit` is how many calls were allowed.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"the chat was not done after {limit} model calls (Limits.steps={limit}); "
            "raise it, or end it gracefully with a hook that returns Stop"
        )


class ChatAbortedError(HooklineError):
    """The chat was aborted. `partial` holds the messages that were kept.

    What to do: nothing, where the abort was yours; `reason` is what it was given.
    """

    def __init__(self, reason: str | None, partial: Sequence[Any] = ()) -> None:
        self.reason = reason
        self.partial = tuple(partial)
        super().__init__(
            f"the chat was aborted: {reason or 'no reason given'}; see partial for what was kept"
        )


class StreamInterruptedError(HooklineError):
    """A third party cancelled the run, so what was streamed is not the whole answer.

    What to do: ask again; do not show what came as an answer.
    """

    def __init__(self) -> None:
        super().__init__(
            "the run behind this stream was cancelled from outside, and the answer is cut off; ask "
            "again, and look for what cancelled the task"
        )


class SubscriptionOverflowError(HooklineError):
    """A subscriber lagged more events behind than its bound, so it was closed.

    What to do: read faster, or subscribe with a larger `size=` or with `overflow="drop_oldest"`.
    `limit` is the bound.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"the subscription was closed: it lagged {limit} events behind. Read faster, "
            "subscribe with a larger size=, or with overflow='drop_oldest'"
        )
