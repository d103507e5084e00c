"""The scopes of a chat that has its own tools."""

from __future__ import annotations

from typing import Final

from hookline._base.log import logger
from hookline._tools.scopes import LOCK, Scope, Scopes

_OWN: Final = object()  # the token of each chat's own scope


class ChatScopes(Scopes):
    """The scopes of an agent in one chat that has its own tools, as the scope `chat`.

    They follow later changes of the agent's scopes. Raises ScopeError if the agent already has a
    tool with the same name, unless `hides`. If such a tool is registered later, it is hidden in
    this chat.
    """

    def __init__(self, agents: Scopes, own: Scope, *, hides: bool = False) -> None:
        super().__init__()
        self.observers = agents.observers  # the agent's observers do not depend on one chat
        self._hidden_names: set[str] = set()
        self._agents = agents
        self._own = own
        with LOCK:
            if not hides:
                agents._check(own)
            agents._followers.add(self)
            self.follow()

    def follow(self) -> None:
        """Take over the current scopes of the agent."""
        # The chat's own scope is the last, so its tools win. Nothing removes it.
        self._place({**self._agents._entries, _OWN: self._own})
        names = {tool.name for tool in self._own.tools} & self._agents.tools.keys()
        for name in sorted(names - self._hidden_names):
            logger.warning("tool %r was registered, but a chat's own tool hides it", name)
        self._hidden_names = names
