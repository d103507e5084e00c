"""A relay lets any process read, resume, and stop the runs of the other processes, through Redis.

Pass it to the app of each process:
`app(agent, store=…, on_disconnect="detach", relay=RedisRelay("redis://…"))`. Needs
`pip install "hookline[redis]"` and Redis 7. `relay.observe(name)` lets another program see the
events of all processes: outcomes, approvals, tool calls.
"""

from hookline.web.relay._relay import RedisRelay
from hookline.web.relay._remote_observers import Observed, Observer

__all__ = ["Observed", "Observer", "RedisRelay"]
