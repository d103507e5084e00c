"""`expect(response)`: assertions about the calls of a chat. A failure prints all its calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias, cast

from hookline import AssistantMessage, Message, Response, ToolMessage
from hookline.errors import UsageError
from hookline.events import ApprovalRequested, ChatDone, ChatEvent, MessageAdded
from hookline.models import Prices, price_function
from hookline.points import check_number
from hookline.testing._descriptions import show

Check: TypeAlias = Callable[[Any], object]
"""A predicate; the value is right if it returns something true."""
Values: TypeAlias = Mapping[str, object]
WAITING: Final = "waiting"  # the outcome of a call without a result


@dataclass(frozen=True)
class _Call:
    """One call of the chat, with the arguments that counted."""

    name: str
    arguments: Values | None
    """None if only an earlier chat has them, which has stopped at the call."""
    outcome: str
    text: str
    has_approval_request: bool

    @property
    def line(self) -> str:
        values = "of an earlier chat"
        if self.arguments is not None:
            values = ", ".join(f"{name}={show(value)}" for name, value in self.arguments.items())
        result = f": {show(self.text)}" if self.text else ""
        return f"{self.name}({values}) -> {self.outcome}{result}"

    def has(self, arguments: Values, *, if_unknown: bool = False) -> bool:
        known = self.arguments
        if known is None:
            return if_unknown or not arguments
        return all(
            name in known and _is_right(expected, known[name])
            for name, expected in arguments.items()
        )


def _is_right(expected: object, value: object) -> bool:
    """Whether the value equals the expected one, or passes the predicate."""
    if callable(expected) and not isinstance(expected, type):
        return bool(cast("Check", expected)(value))
    return expected == value


class Expectation:
    """Assertions about one chat, made by `expect`. Each returns the object, so that they chain.

    Each raises AssertionError with a list of all calls. `before` and `after` concern the call that
    the last `called`, `denied` or `asked` has found.
    """

    def __init__(self, response: Response[Any] | None, calls: list[_Call]) -> None:
        self._response = response
        self._calls = calls
        self._last: int | None = None

    # ── calls ───────────────────────────────────────────────────────────────────────────────

    def called(
        self,
        tool: str,
        arguments: Values | None = None,
        /,
        *,
        outcome: str = "ok",
        times: int | None = None,
        **more: object,
    ) -> Self:
        """Check that the tool was called with these arguments, and ended with this outcome.

        The arguments are those that the tool got: after the changes of hooks and of an approver.
        Arguments that are not named may have any value. A function in place of a value is called
        with the value, and must return something true. For an argument that is named `outcome` or
        `times`, use a dict: `called("ring", {"times": 3})`. `times=` is the exact number of such
        calls.
        """
        arguments = {**(arguments or {}), **more}
        expectation = f"{_call_text(tool, arguments)} -> {outcome}"
        places = self._places(tool, arguments, lambda call: call.outcome == outcome)
        if times is not None and len(places) != times:
            raise self._error(f"{expectation}, {times} times; it was called {len(places)} times")
        return self if times == 0 else self._at(places, expectation)

    def not_called(self, tool: str, arguments: Values | None = None, /, **more: object) -> Self:
        """Check that no call of this tool, with these arguments, ran or waits."""
        arguments = {**(arguments or {}), **more}
        ran = ("ok", "error", "aborted", WAITING)
        calls = [call for call in self._calls if call.name == tool and call.outcome in ran]
        if any(call.has(arguments, if_unknown=True) for call in calls):
            raise self._error(f"no {_call_text(tool, arguments)}")
        return self

    def denied(
        self,
        tool: str,
        arguments: Values | None = None,
        /,
        *,
        reason: str | None = None,
        **more: object,
    ) -> Self:
        """Check that a call was denied; `reason` must be a part of what the model read."""
        arguments = {**(arguments or {}), **more}
        because = "" if reason is None else f" because {reason!r}"

        def is_denied(call: _Call) -> bool:
            return call.outcome == "denied" and (reason is None or reason in call.text)

        places = self._places(tool, arguments, is_denied)
        return self._at(places, f"{_call_text(tool, arguments)} -> denied{because}")

    def asked(self, tool: str, arguments: Values | None = None, /, **more: object) -> Self:
        """Check that an approval was requested for a call, whatever the answer was."""
        arguments = {**(arguments or {}), **more}
        places = self._places(tool, arguments, lambda call: call.has_approval_request)
        return self._at(places, f"an approval to be requested for {_call_text(tool, arguments)}")

    def before(self, tool: str, /) -> Self:
        """Check that the call stands before each call of this tool, and that there is one."""
        if self._place > self._first(tool):
            raise self._error(f"{self._calls[self._place].name} before {tool}")
        return self

    def after(self, tool: str, /) -> Self:
        """Check that the call stands after a call of this tool."""
        if self._place < self._first(tool):
            raise self._error(f"{self._calls[self._place].name} after {tool}")
        return self

    # ── the answer ──────────────────────────────────────────────────────────────────────────

    def text(self, *, contains: str | None = None, matches: str | None = None) -> Self:
        """Check the last answer's text; `matches` is a regular expression to search for."""
        text = self._done.text
        if contains is not None and contains not in text:
            raise self._error(f"a text with {contains!r}, but the answer is {show(text)}")
        if matches is not None and re.search(matches, text) is None:
            raise self._error(f"a text that matches {matches!r}, but the answer is {show(text)}")
        return self

    def cost_below(self, limit: float, prices: Prices) -> Self:
        """Check what the answers cost; raises UsageError for a model without a price."""
        check_number("limit", limit)
        price = price_function(prices)
        total = 0.0
        for message in self._done.messages:
            if isinstance(message, AssistantMessage) and message.usage is not None:
                cost = price(message.model or "", message.usage)
                if cost is None:
                    raise UsageError(
                        f"prices= has no price of the model {message.model!r}; add its Rates"
                    )
                total += cost
        if total >= limit:
            raise self._error(f"a cost below {limit:g}, but the answers cost {total:g}")
        return self

    def steps_below(self, limit: int) -> Self:
        """Check that the chat had fewer model calls than this."""
        check_number("limit", limit, whole=True)
        if self._done.steps >= limit:
            raise self._error(f"fewer than {limit} steps, but the chat had {self._done.steps}")
        return self

    # ── inside ──────────────────────────────────────────────────────────────────────────────

    @property
    def _done(self) -> Response[Any]:
        if self._response is None:
            raise self._error("a chat with a response, but it ended without one")
        return self._response

    @property
    def _place(self) -> int:
        if self._last is None:
            raise UsageError(
                f"there is no call whose place could be compared; name one of "
                f"{[call.name for call in self._calls]} first: called(…).before(…)"
            )
        return self._last

    def _places(self, tool: str, arguments: Values, matches: Callable[[_Call], bool]) -> list[int]:
        """The places of the calls of this tool that match, with these arguments."""
        return [
            place
            for place, call in enumerate(self._calls)
            if call.name == tool and matches(call) and call.has(arguments)
        ]

    def _first(self, tool: str) -> int:
        places = self._places(tool, {}, lambda call: True)
        if not places:
            raise self._error(f"a call of {tool}")
        return places[0]

    def _at(self, places: Sequence[int], expectation: str) -> Self:
        if not places:
            raise self._error(expectation)
        self._last = places[0]
        return self

    def _error(self, expectation: str) -> AssertionError:
        lines = "".join(f"\n  {call.line}" for call in self._calls) or " none"
        return AssertionError(f"expected {expectation}\nthe calls of the chat:{lines}")


def _call_text(tool: str, arguments: Values) -> str:
    values = ", ".join(f"{name}={_name_of(value)}" for name, value in arguments.items())
    return f"{tool}({values})"


def _name_of(value: object) -> str:
    if callable(value) and not isinstance(value, type):
        return f"<{getattr(value, '__name__', 'a function')}>"
    return show(value)


def expect(chat: Response[Any] | Iterable[ChatEvent]) -> Expectation:
    """Check the calls and the answer of a chat: `expect(response).called("refund", amount=9)`.

    `chat` is a response, or the events of a stream. The calls of sub-agents are not among them. The
    calls that `agent.resume` has run are; their arguments are known if a hook or an approver has
    changed them, or if `chat` has the events of both streams.
    """
    if isinstance(chat, Response):
        response = chat
        requests = [request.call.id for request in response.pending]
        return Expectation(response, _calls(response.messages, requests))
    events = [event for event in chat if not event.path]
    done = next((event.response for event in events if isinstance(event, ChatDone)), None)
    messages = [event.message for event in events if isinstance(event, MessageAdded)]
    requests = [event.request.call.id for event in events if isinstance(event, ApprovalRequested)]
    return Expectation(done, _calls(messages, requests))


def _calls(messages: Sequence[Message], request_ids: Iterable[str]) -> list[_Call]:
    """The calls of an earlier chat that have a result here, then those that the model wrote."""
    results = {message.call_id: message for message in messages if isinstance(message, ToolMessage)}
    waiting = set(request_ids)
    written = [
        call
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls
    ]
    earlier = results.keys() - {call.id for call in written}
    return [
        *(_call(m.name, None, m, is_waiting=False) for id, m in results.items() if id in earlier),
        *(
            _call(call.name, call.arguments, results.get(call.id), is_waiting=call.id in waiting)
            for call in written
        ),
    ]


def _call(
    name: str, arguments: Values | None, message: ToolMessage | None, *, is_waiting: bool
) -> _Call:
    """A call with its result, if there is one."""
    if message is None:
        return _Call(name, arguments, WAITING, "", is_waiting)
    ran = message.ran
    if ran is not None and ran.arguments is not None:
        arguments = ran.arguments
    asked = is_waiting or (ran is not None and ran.approved is not None)
    return _Call(name, arguments, message.outcome, message.text, asked)
