"""Whether each guard can match a tool: checked at the first request that has tools.

A guard with a wrong name in `tools=` would never run, and nobody would notice. The tools that count
are those of the request, of the agent, of its sub-agents and of the agents that handoffs lead to. A
tool that the provider runs itself passes every hook by, so a guard that names it is refused too.
Global guards are for all agents of a process and need not match here.

It also tells, once, of hooks at preToolCall that do not follow into a chat inside a tool.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hookline._base.errors import UsageError, closest, did_you_mean
from hookline._base.log import logger
from hookline._base.patterns import matches, unmatched
from hookline._chat.config import Config
from hookline._chat.leading_tools import LeadingTool
from hookline._chat.state import Chat
from hookline._hooks.bus import global_bus
from hookline._hooks.registration import Hook
from hookline._model.model import ModelRequest
from hookline._tools.tool import ProviderTool


def check_guards(chat: Chat, request: ModelRequest) -> None:
    """Raise UsageError if a guard that is limited to some tools can match none of them."""
    view, scopes = chat.view, chat.config.scopes
    key = (view.tool_guards, scopes.tools, request.tools)
    if not request.tools or view.compared_with == key:
        return
    guards = [hook for hook in _own_guards(chat) if hook.options.tools is not None]
    if guards:
        names = {tool.name for tool in request.tools if not isinstance(tool, ProviderTool)}
        for config in (chat.first_config, chat.config):
            names.update(_reachable(config))
        provided = [tool.name for tool in request.tools if isinstance(tool, ProviderTool)]
        for hook in guards:
            _check(chat, hook, sorted(names), provided)
    view.compared_with = key


def _own_guards(chat: Chat) -> Iterator[Hook]:
    """The guards of this chat; those of a parent were checked there."""
    inherits = chat.input.parent is not None
    for bus, keep in chat.view.sources:
        if bus is not global_bus and (keep is None or not inherits):
            yield from (hook for hook in bus.standing("preToolCall") if hook.guard)


def _check(chat: Chat, hook: Hook, names: Sequence[str], provided: Sequence[str]) -> None:
    patterns = hook.options.tools or ()
    for name in provided:
        if matches(name, patterns):
            raise UsageError(
                f"guard {hook.name!r} names {name!r}, which the provider runs itself, so no hook "
                "runs before it; remove the tool, or exclude it with allow_tools() or a hook at "
                "preRequest"
            )
    missing = unmatched(patterns, names)
    if len(missing) == len(patterns):
        pattern_list = ", ".join(map(repr, missing))
        hint = did_you_mean(
            dict.fromkeys(n for pattern in missing for n in closest(pattern, names))
        )
        raise UsageError(
            f"guard {hook.name!r} is for {pattern_list}, but agent {chat.agent_name!r} has no such "
            f"tool, nor have its sub-agents{hint}; change tools=, leave out the guard here, or "
            "leave out tools= and compare ctx.call.name in the guard"
        )
    for pattern in missing:
        if pattern not in hook.log_keys:
            hook.log_keys.add(pattern)
            hint = did_you_mean(closest(pattern, names))
            logger.warning(
                "guard %r names %r, but agent %r has no such tool%s",
                hook.name, pattern, chat.agent_name, hint,
            )  # fmt: skip


def _reachable(config: Config) -> set[str]:
    """The names of an agent's tools, and of the agents that its tools lead to."""
    names: set[str] = set()
    todo, ids = [config], {id(config)}
    while todo:
        for tool, _ in todo.pop().scopes.tools.values():
            if not isinstance(tool, ProviderTool):
                names.add(tool.name)
            if isinstance(tool, LeadingTool) and id(tool.speaker.config) not in ids:
                ids.add(id(tool.speaker.config))
                todo.append(tool.speaker.config)
    return names


def tell_of_hooks_left_behind(chat: Chat, around: Chat) -> None:
    """Log the hooks of a chat that do not run in a chat which one of its tools begins.

    A sub-agent leaves behind the hooks for which nobody has decided with `inherit=`. Any other
    chat, of `agent.chat()` in a tool, leaves behind the guards too.
    """
    batch = around.step.batch
    if batch is None or not batch.running:  # a hook has begun this chat
        return
    below = chat.input.parent is around
    current = {hook.definition or hook for hook in chat.view.preToolCall}
    for hook in around.view.preToolCall:
        if hook.origin == "global" or (hook.definition or hook) in current:
            continue
        stays = hook.options.inherit is None if below else hook.guard and hook.options.inherit
        if stays and chat.agent_name not in hook.log_keys:
            hook.log_keys.add(chat.agent_name)
            logger.warning(
                "hook %r at preToolCall of agent %r does not run in the chat of agent %r inside a "
                "tool; %s",
                hook.name,
                around.agent_name,
                chat.agent_name,
                "write inherit=True, or inherit=False to say so"
                if below
                else "use as_tool(), or add the hook to that agent too",
            )
