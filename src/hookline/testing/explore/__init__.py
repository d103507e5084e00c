"""`explore(make, guarded)`: is there any way past this policy? Needs the extra `explore`.

    def test_no_refund_without_approval():
        explore(make_agent, {"refund": lambda arguments: arguments["amount"] > 50})

A scene is a chat, or a few: what a model writes, what people answer and when, in which order
parallel tools end, aborts, crashes of a durable worker, answers that come twice or to a wrong
question, resumed chats in a new process, sub-agents. Hypothesis chooses the scenes and shortens the
one that fails. No tool of the agent runs.

Experimental: this module may change in a minor version.
"""

from hookline.testing.explore._arguments import Guarded
from hookline.testing.explore._scene import Fault
from hookline.testing.explore._search import Explored, Invariant, Unapproved, explore
from hookline.testing.explore._world import World

__all__ = ["Explored", "Fault", "Guarded", "Invariant", "Unapproved", "World", "explore"]
