"""Durable chats on Restate, on any number of machines; a dead worker is noticed at once.

    agent = Agent("anthropic:…", tools=[…], store="postgresql://…", runtime=Durable())
    app = chats(agent)                                   # ASGI: `hypercorn module:app`, or
    async with chats(agent, "http://127.0.0.1:8080"):    # served and registered from here
        async with Chats("http://127.0.0.1:8080") as client:     # from any process, on any machine
            await client.start("Book it.", conversation="c1", chat_id="7f3")
            response = await client.result("7f3")

The client needs no SDK, only httpx. A chat that waits for an answer is suspended after `idle`
seconds, and takes up no memory until the answer arrives. You also need Restate's server, a separate
program.
"""

from hookline.durable.restate._engine import Chats, Worker, chats

__all__ = ["Chats", "Worker", "chats"]
