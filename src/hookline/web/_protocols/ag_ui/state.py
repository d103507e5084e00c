"""Share state and context between an AG-UI front end and a chat.

The declared keys of `run.state` are sent to the front end: first the whole state, then each change
(JSON Patch, RFC 6902). For a key with a type, the front end's values are accepted, too, if they fit
the type. Changes are detected after each message and status, and at the end of the chat. They enter
the stream as a status, so every reader sees them in order among the other events.

Context is text from a front end. It is added to the user's message, never to the system text.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

import msgspec

from hookline import HookDef, UserMessage, define_hook
from hookline.errors import UsageError
from hookline.models import ModelRequest
from hookline.points import OnChatEnd, OnChatStart, OnMessage, OnStatus, PreRequest
from hookline.web._http.request_reply import Refused
from hookline.web._protocols.ag_ui.encoder import STATE
from hookline.web._protocols.incoming import Incoming

AgUiState: TypeAlias = Mapping[str, Any]
"""The shared keys of `run.state`."""
Moment: TypeAlias = OnChatStart[Any] | OnMessage[Any] | OnStatus[Any] | OnChatEnd[Any]
FIRST: Final = 1_000_000  # so that every guard and redaction sees the context
LAST: Final = -1_000_000  # after the hooks that may change the state at the same point
TITLE: Final = "Context from the user's application"


def share(
    options: dict[str, Any], incoming: Incoming, state: AgUiState | None, *, context: bool
) -> dict[str, Any]:
    """Add the shared state and context to a chat's options; raises Refused for a bad state."""
    hooks: list[Any] = []
    if state:
        options = {
            **options,
            "state": {**(options.get("state") or {}), **_typed_state(incoming, state)},
        }
        hooks += StateSender(state).hooks
    if context and incoming.context:
        hooks.append(_context_hook(incoming.context))
    if hooks and options.get("hooks"):
        hooks.insert(0, SimpleNamespace(hooks=options["hooks"]))
    return {**options, "hooks": hooks} if hooks else options


def _typed_state(incoming: Incoming, declared: AgUiState) -> dict[str, Any]:
    """Convert the state from the front end to the declared types."""
    values: dict[str, Any] = {}
    for key, type in declared.items():
        if type is not None and key in incoming.state:
            try:
                values[key] = msgspec.convert(incoming.state[key], type)
            except (msgspec.ValidationError, RecursionError):
                raise Refused(
                    400, f"The state {key!r} must fit the type that the server declares."
                ) from None
    return values


class StateSender:
    """The hooks that send the state of one chat to the front end."""

    def __init__(self, keys: AgUiState) -> None:
        self._keys = tuple(keys)
        self._last: dict[str, Any] | None = None
        self._telling = False

    @property
    def hooks(self) -> list[HookDef]:
        """Return the hooks; they run after all other hooks of their points."""
        return [
            define_hook("onChatStart", self._look, name=STATE, priority=LAST),
            define_hook("onMessage", self._look, name=STATE, priority=LAST),
            define_hook("onStatus", self._look, name=STATE, priority=LAST),
            define_hook("onChatEnd", self._look, name=STATE, priority=LAST),
        ]

    async def _look(self, ctx: Moment) -> None:
        if self._telling:  # the outer call reports changes made while the status is sent
            return
        self._telling = True
        try:
            while (change := self._change(ctx.run.state)) is not None:
                await ctx.run.status(STATE, change)
        finally:
            self._telling = False

    def _change(self, state: dict[str, Any]) -> dict[str, Any] | None:
        before, now = self._last, self._json(state)
        change = {"snapshot": now} if before is None else {"delta": differences(before, now)}
        if not any(change.values()):
            return None
        self._last = now
        return change

    def _json(self, state: dict[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key in self._keys:
            if key in state:
                try:
                    values[key] = msgspec.json.decode(msgspec.json.encode(state[key]))
                except (TypeError, ValueError, RecursionError) as exc:
                    raise UsageError(
                        f"run.state[{key!r}] is shared with front ends; keep JSON data in it: {exc}"
                    ) from exc
        return values


def differences(before: Any, after: Any, path: str = "") -> list[dict[str, Any]]:
    """Return the JSON Patch operations that turn `before` into `after`."""
    old: Any = before  # keeps its type where `isinstance` narrows the other name
    new: Any = after
    if isinstance(before, dict) and isinstance(after, dict):
        return _of_objects(old, new, path)
    if isinstance(before, list) and isinstance(after, list):
        return _of_arrays(old, new, path)
    if type(old) is type(new) and old == new:
        return []
    return [{"op": "replace", "path": path, "value": after}]


def _of_objects(before: dict[str, Any], after: dict[str, Any], path: str) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = []
    for key in {**before, **after}:
        place = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        if key not in after:
            operations.append({"op": "remove", "path": place})
        elif key not in before:
            operations.append({"op": "add", "path": place, "value": after[key]})
        else:
            operations += differences(before[key], after[key], place)
    return operations


def _of_arrays(before: list[Any], after: list[Any], path: str) -> list[dict[str, Any]]:
    """Compare arrays element by element; additions and removals are at the end."""
    operations: list[dict[str, Any]] = []
    for at, (old, new) in enumerate(zip(before, after, strict=False)):
        operations += differences(old, new, f"{path}/{at}")
    for at in range(len(before) - 1, len(after) - 1, -1):
        operations.append({"op": "remove", "path": f"{path}/{at}"})
    for value in after[len(before) :]:
        operations.append({"op": "add", "path": f"{path}/-", "value": value})
    return operations


def _context_hook(context: tuple[tuple[str, str], ...]) -> HookDef:
    """Return the hook that adds the context to requests, after the user's message; never stored."""
    lines = [f"- {description}: {value}" for description, value in context]
    section = "\n".join([f"## {TITLE}", *lines])

    def tell(ctx: PreRequest[Any]) -> ModelRequest | None:
        messages = list(ctx.request.messages)
        for at in range(len(messages) - 1, -1, -1):
            message = messages[at]
            if isinstance(message, UserMessage):
                messages[at] = message.replace(text=f"{message.text}\n\n{section}")
                return ctx.request.replace(messages=tuple(messages))
        return None

    return define_hook("preRequest", tell, name="ag_ui.context", priority=FIRST)
