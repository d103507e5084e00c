"""Durable chats on one machine, in a SQLite file: nothing to install, no server.

    agent = Agent("anthropic:…", tools=[…], store="sqlite:///chats.db", runtime=Durable())
    async with chats(agent, "jobs.db"):                  # a worker: any number of processes
        client = Chats("jobs.db")                        # from any process of this machine
        await client.start("Book it.", conversation="c1", chat_id="7f3")
        response = await client.result("7f3")

A few times a second, a worker signals in the file that it is alive, and takes free jobs. If a
worker gives no sign of life for `lease` seconds, its jobs count as free. A chat that waits for an
answer is suspended after `idle` seconds, and takes up no memory until the answer arrives.
"""

from hookline.durable.sqlite._engine import Chats, Worker, chats

__all__ = ["Chats", "Worker", "chats"]
