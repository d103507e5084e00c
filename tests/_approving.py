"""A process that asks for an approval and dies, or answers one.

python tests/_approving.py URL CONVERSATION FILE ask after|before|never
python tests/_approving.py URL CONVERSATION FILE approve|die APPROVAL_ID
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from hookline import Agent, Approve, Ask
from hookline.errors import ApprovalError, ConversationBusyError
from hookline.stores import SQLStore
from hookline.testing import ScriptedModel, call


async def main(url: str, talk: str, file: str, what: str, *rest: str) -> None:
    def delete(path: str) -> str:
        """Delete a file."""
        with open(file, "a") as out:
            out.write(f"{path}\n")
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{path} is gone"

    turns: list[Any] = [call("delete", path="a.txt")] if what == "ask" else []
    dies = what == "die" or rest[0] in ("before", "after")
    async with SQLStore(url, lease=0.3 if dies else 30) as store:
        agent = Agent(ScriptedModel(*turns, "done"), tools=[delete], store=store)
        agent.add_hook("preToolCall", lambda ctx: Ask("Delete it?"))
        if what == "ask":
            if rest[0] == "before":
                agent.add_hook("onChatDone", lambda ctx: os.kill(os.getpid(), signal.SIGKILL))
            response = await agent.chat("Delete a.txt.", conversation=talk)
            assert response.stop_reason == "approval"
            print(*[request.id for request in response.pending], flush=True)
            if rest[0] == "after":
                os.kill(os.getpid(), signal.SIGKILL)
            return
        while True:
            try:
                print((await agent.resume(talk, {rest[0]: Approve()})).text)
            except ApprovalError:
                print("ApprovalError")
            except ConversationBusyError:  # of a dead process: until its lease runs out
                await asyncio.sleep(0.05)
                continue
            return


asyncio.run(main(*sys.argv[1:]))
