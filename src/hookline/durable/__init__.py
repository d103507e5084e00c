"""Chats that outlive their worker, on an engine that keeps a log for each of them.

Each engine is a module of its own: `hookline.durable.sqlite` for one machine, with nothing to
install. All have the same face: `chats(agent, …)` makes a worker, and `Chats(…)` is its client,
which starts, answers, aborts and awaits a chat by its id, from any process.
"""

__all__: list[str] = []
