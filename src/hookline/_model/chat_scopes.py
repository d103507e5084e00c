"""The scopes that one chat sees where it brings tools of its own."""

from __future__ import annotations

from hookline._base.log import logger
from hookline._model.scopes import Scope, Scopes


class ChatScopes(Scopes):
    """The scopes of an agent in one chat that brings tools of its own, as the scope `chat`.

    They follow what is registered and removed meanwhile. Raises ScopeError where the agent has a
    tool of one of the names; a tool of that name that comes later is hidden in this chat.
    """

    def __init__(self, agents: Scopes, own: Scope) -> None:
        super().__init__()
        self._hidden: set[str] = set()
        self._agents = agents
        self._own = own
        self._token = object()
        with agents._lock:
            self._place(agents._entries)
            self.register(own)  # which refuses a name that is taken
            agents._followers.add(self)

    @property
    def told_by(self) -> Scopes:
        """The agent's own: what its observers are told is no matter of one chat."""
        return self._agents

    def follow(self) -> None:
        """Take over what the agent's scopes have become."""
        self._place((*self._agents._entries, (self._token, self._own)))
        hidden = {each.name for each in self._own.tools} & self._agents.tools.keys()
        for name in sorted(hidden - self._hidden):
            logger.warning("tool %r was registered and is hidden in a chat that brought one", name)
        self._hidden = hidden
