"""Decides which hooks run in a chat: global hooks, the agent's, the chat's own, and a parent's."""

from __future__ import annotations

from typing import Any, TypeAlias

from hookline._hooks.bus import HookBus, Keep, NullBus, View, global_bus
from hookline._hooks.registration import Hook

Sources: TypeAlias = tuple[tuple[HookBus[Any], Keep | None], ...]


def sources_of(bus: HookBus[Any], *, with_global: bool) -> Sources:
    """The sources of an agent's hooks; on a NullBus, no hooks of any source run."""
    if not with_global:
        return ((bus, None),)
    return ((global_bus, _none if isinstance(bus, NullBus) else None), (bus, None))


def only_required(sources: Sources) -> Sources:
    """Filter the sources for `only_hooks=`: of the declared hooks, only the required ones run."""
    return tuple((bus, keep or _stays) for bus, keep in sources)


def for_sub_agent(parent: View, sources: Sources) -> Sources:
    """The sources of a sub-agent, including the inherited hooks of its parent."""
    silent = any(isinstance(bus, NullBus) for bus, _ in sources)
    above = tuple(
        (bus, _none if silent else _for_sub_agents(keep))
        for bus, keep in parent.sources
        if bus is not global_bus
    )
    # Global hooks are not inherited: the sub-agent's own sources say whether they run.
    own = [source for source in sources if source[0] is not global_bus]
    shared_sources = [source for source in sources if source[0] is global_bus]
    return (*shared_sources, *above, *own)


def inherited_points(parent: View) -> set[object]:
    """The points at which a parent has hooks for its sub-agents."""
    return {
        hook.spec.key
        for bus, _ in parent.sources
        for hook in bus.all_hooks()
        if hook.options.inherit
    }


def _none(hook: Hook) -> bool:
    return False


def _stays(hook: Hook) -> bool:
    return not hook.declared or bool(hook.options.required)


def _for_sub_agents(keep: Keep | None) -> Keep:
    return lambda hook: bool(hook.options.inherit) and (keep is None or keep(hook))
