"""Remote observers: another process receives every event, even those published while it was down.

Events are stored in partitions; all events of a conversation are in the same partition. Each
partition is read by one member of a name at a time, one event after the other, from the last
acknowledged position. So the events of a chat arrive in order, even if members die. The price: an
event that was not yet acknowledged is delivered again. (The consumer groups of Redis hand events of
one chat to several members concurrently, and redeliver a dead member's events after newer events.)
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from secrets import token_hex
from typing import Final

import msgspec

from hookline.errors import UsageError
from hookline.events import ChatEvent, read_event
from hookline.web._runs.store_keys import prefix_of
from hookline.web.relay._reader import streams_of
from hookline.web.relay._redis import Names, connect, outages, unreachable
from hookline.web.relay._writer import OBSERVED, PARTITIONS

logger = logging.getLogger("hookline.web")

BLOCK: Final = 1000  # milliseconds
COUNT: Final = 100  # events of a partition to read at a time

# Renew a member; give it a fair share of the partitions that nobody reads, and take away any beyond
# that share, except for the partition in use. Only the clock of Redis counts.
TEND: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local me, lease, all, busy = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + lease, me)
redis.call('PEXPIRE', KEYS[1], lease * 10)
local fair = math.ceil(all / redis.call('ZCARD', KEYS[1]))
local mine = {}
for n = 0, all - 1 do
  local key = ARGV[5] .. n
  if redis.call('GET', key) == me then
    if #mine < fair or tostring(n) == busy then
      redis.call('PEXPIRE', key, lease)
      mine[#mine + 1] = n
    else
      redis.call('DEL', key)
    end
  end
end
for n = 0, all - 1 do
  if #mine < fair and redis.call('SET', ARGV[5] .. n, me, 'NX', 'PX', lease) then
    mine[#mine + 1] = n
  end
end
return mine
"""
# Acknowledge up to this position, if the partition still belongs to this member.
ACKNOWLEDGE: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
return 1
"""
LEAVE: Final = """
for n = 0, tonumber(ARGV[2]) - 1 do
  if redis.call('GET', ARGV[3] .. n) == ARGV[1] then redis.call('DEL', ARGV[3] .. n) end
end
redis.call('ZREM', KEYS[1], ARGV[1])
return 1
"""


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """An event from one of the processes."""

    event: ChatEvent
    """The event; `event.chat_id` and `event.seq` together identify it."""
    principal: str
    """The principal that the chat belongs to."""
    conversation_id: str
    """The conversation's name, as the principal knows it."""


class Observer:
    """One of the observers that share a name: `async with` connects, and `async for` yields events.

    An event is acknowledged when the iteration asks for the next event. If an exception or the end
    of the process interrupts the handling of an event, the event is delivered again, to this or
    another observer. Raises UsageError for an invalid name, type or time. `async with` raises
    StoreError if Redis cannot be used.
    """

    def __init__(
        self,
        url: str,
        names: Names,
        name: str,
        *,
        types: tuple[type[ChatEvent], ...],
        since: str,
        lease: float,
    ) -> None:
        if not name or not name.isprintable():
            raise UsageError(f"name={name!r} of an observer must be non-empty, printable text")
        for type_ in types:
            if type_ not in OBSERVED:
                choices = ", ".join(choices.__name__ for choices in OBSERVED)
                raise UsageError(
                    f"{type_!r} does not reach remote observers; use one of: {choices}"
                )
        if since not in ("start", "now"):
            raise UsageError(f"since={since!r} must be 'start' or 'now'")
        if lease < 0.2:
            raise UsageError(f"lease={lease!r} must be at least 0.2 seconds")
        self._url, self._names = url, names
        self._members = names.members(name)
        self._readers = f"{self._members}:"
        self._offsets = f"{self._members}:places"
        self._types, self._start_at = types, since
        self._lease = lease
        self._id = token_hex(8)
        self._queue: deque[tuple[int, bytes, dict[bytes, bytes]]] = deque()
        self._places: dict[int, bytes] = {}  # the position in each of our partitions
        # Delivered, and not yet acknowledged.
        self._busy: tuple[int, bytes, dict[bytes, bytes]] | None = None

    async def __aenter__(self) -> Observer:
        self._outages = outages()
        self._queue.clear()  # what was read before, but not acknowledged, is read again
        self._places.clear()
        self._busy = None
        self._commands, self._reading = connect(self._url), connect(self._url)
        try:
            await self._tend()
        except Exception as exc:
            await self._commands.aclose()
            raise unreachable(exc) from None
        self._tending = asyncio.create_task(self._keep(), name="hookline.web remote observer")
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._tending.cancel()
        await asyncio.gather(self._tending, return_exceptions=True)
        try:
            args = [self._id, PARTITIONS, self._readers]
            await self._commands.eval(LEAVE, 1, self._members, *args)
        except self._outages:
            pass  # the partitions are free once the lease has expired
        await self._commands.aclose()
        await self._reading.aclose()

    def __aiter__(self) -> Observer:
        if self._busy is not None:  # another loop was left while it handled this event
            self._queue.appendleft(self._busy)
            self._busy = None
        return self

    async def __anext__(self) -> Observed:
        while True:
            try:
                await self._acknowledge()
                observed = await self._next()
            except self._outages as exc:
                logger.warning("the relay's Redis is not reachable: %s", type(exc).__name__)
                await asyncio.sleep(0.2)
                continue
            if observed is not None:
                return observed

    async def _next(self) -> Observed | None:
        if not self._queue:
            await self._read()
            return None
        partition, id, fields = self._queue.popleft()
        if partition not in self._places:
            return None  # another member has it now, and begins where we had acknowledged
        self._busy = (partition, id, fields)
        try:
            event = read_event(fields[b"e"])
        except (ValueError, msgspec.MsgspecError):
            logger.error("a remote observer skips an event that cannot be decoded")
            return None
        if not isinstance(event, self._types):
            return None
        principal = fields[b"p"].decode()
        return Observed(
            event=event,
            principal=principal,
            conversation_id=fields[b"k"].decode().removeprefix(prefix_of(principal)),
        )

    async def _acknowledge(self) -> None:
        """Acknowledge the last delivered event."""
        if self._busy is None:
            return
        partition, id, _ = self._busy
        keys = [f"{self._readers}{partition}", self._offsets]
        if not await self._commands.eval(ACKNOWLEDGE, 2, *keys, self._id, partition, id):
            # We were too slow: another member has the partition, and repeats the event.
            self._places.pop(partition, None)
        self._busy = None

    async def _read(self) -> None:
        """Wait for events in this member's partitions."""
        partitions = {
            self._names.events(partition_): (partition_, place)
            for partition_, place in self._places.items()
        }
        if not partitions:
            await asyncio.sleep(self._lease / 10)
            return
        streams = {stream: place for stream, (_, place) in partitions.items()}
        block = min(BLOCK, int(self._lease * 1000 / 4))
        got = await self._reading.xread(streams, count=COUNT, block=block)
        for name, entries in streams_of(got):
            partition, place = partitions[name.decode()]
            if self._places.get(partition) != place:
                continue  # the partition was lost, and perhaps regained, while we waited
            for id, fields in entries:
                self._places[partition] = id
                self._queue.append((partition, id, fields))

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._lease / 3)
            try:
                await self._tend()
            except self._outages as exc:
                logger.warning("the relay's Redis is not reachable: %s", type(exc).__name__)

    async def _tend(self) -> None:
        """Keep this member's partitions, and take free ones."""
        busy = "" if self._busy is None else str(self._busy[0])
        args = [self._id, int(self._lease * 1000), PARTITIONS, busy, self._readers]
        mine = await self._commands.eval(TEND, 1, self._members, *args)
        for partition in set(self._places) - set(mine):
            del self._places[partition]
        if any(number not in self._places for number in mine):
            self._queue = deque(number for number in self._queue if number[0] in self._places)
        for number in mine:
            if number not in self._places:
                self._places[number] = await self._place(number)

    async def _place(self, partition: int) -> bytes:
        """Return the position that the members of this name have acknowledged."""
        position: bytes | None = await self._commands.hget(self._offsets, str(partition))
        if position is not None:
            return position
        place = b"0-0"
        if self._start_at == "now":
            last = await self._commands.xrevrange(self._names.events(partition), count=1)
            place = last[0][0] if last else place
        await self._commands.hsetnx(self._offsets, str(partition), place)
        current: bytes = await self._commands.hget(self._offsets, str(partition))
        return current
