"""Durable chats on PostgreSQL, on any number of machines; no other server is needed.

    agent = Agent("anthropic:…", tools=[…], store="postgresql://…", runtime=Durable())
    async with chats(agent, "postgresql://…"):               # a worker: any number of processes
        async with Chats("postgresql://…") as client:        # from any process
            await client.start("Book it.", conversation="c1", chat_id="7f3")
            response = await client.result("7f3")

hookline creates its tables, whose names begin with `hookline_job`, on first use. If a worker gives
no sign of life for `lease` seconds, other workers take over its chats. A chat that waits for an
answer is suspended after `idle` seconds.
"""

from hookline.durable.postgres._engine import Chats, Worker, chats

__all__ = ["Chats", "Worker", "chats"]
