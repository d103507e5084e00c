"""Resume a chat with a kind of guard in another process, and print the commands that ran."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress

from tests.guards.case import APPROVED, Case

from hookline.errors import HooklineError
from hookline.stores import SQLStore


async def main(order: str) -> None:
    kind, url, requests = json.loads(order)
    case = Case(kind)
    async with SQLStore(url) as store:
        agent = case.agent("done", store=store)
        with suppress(HooklineError):
            await agent.resume("one", dict.fromkeys(requests, APPROVED), **case.keywords)
    print(json.dumps(case.ran))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
