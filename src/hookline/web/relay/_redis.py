"""The connection to Redis, the names of its keys, and the scripts that decide which process runs.

Names. `KEY` is a conversation's key, which begins with its principal's name:

    run:KEY          the last run: run, worker, header, and over=1 after its end; for a durable
                     chat the worker is "-", and life is the number of the life that shows it
    log:KEY:RUN      the stream of that run's entries
    worker:ID        exists while that process is alive
    inbox:ID         messages from other processes
    told:N           the events for remote observers, in partitions
    seen:NAME:N      the process that reads that partition for the observers with that name
"""

from __future__ import annotations

import asyncio
import re
from importlib import import_module
from typing import Any, Final
from urllib.parse import urlsplit

from hookline.errors import StoreError, UsageError

DURABLE: Final = "-"
"""The worker of a durable chat, which any process can run."""
SILENCE: Final = 5.0
"""Seconds after which a Redis that does not answer counts as not reachable."""
UNFIT: Final = ("UNBLOCKED", "NOREPLICAS", "MISCONF")
"""How the errors of a Redis begin that cannot serve now: after a failover, or without its disk."""
# Claim a conversation, if it has no run or the process of its run is gone. The command may arrive
# twice, or after the process has given up: a claim whose run does not begin expires soon. HSET is
# the first write, because a Redis without memory refuses it there, but not after another write.
CLAIM: Final = """
local had = redis.call('HMGET', KEYS[1], 'worker', 'over', 'run')
if had[3] == ARGV[2] then return 1 end
if had[1] and had[2] ~= '1'
  and (had[1] == '-' or redis.call('EXISTS', ARGV[1] .. had[1]) == 1) then return 0 end
redis.call('HSET', KEYS[1], 'run', ARGV[2], 'worker', ARGV[3])
redis.call('HDEL', KEYS[1], 'header', 'over', 'life', 'ends')
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
"""
# Update a run if it is still the current one; restore it if Redis has lost it.
SAY: Final = """
local had = redis.call('HMGET', KEYS[1], 'run', 'over')
if had[1] and (had[1] ~= ARGV[1] or had[2] == '1') then return 0 end
redis.call('HSET', KEYS[1], 'run', ARGV[1], 'worker', ARGV[2], 'header', ARGV[3], 'over', '0')
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
"""
# Renew a claim, unless its run has begun: the run has a longer time to live.
RENEW: Final = """
local had = redis.call('HMGET', KEYS[1], 'run', 'header')
if had[1] == ARGV[1] and not had[2] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
"""
# Undo a claim whose run did not begin.
RELEASE: Final = """
if redis.call('HGET', KEYS[1], 'run') == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
"""
# Let a life of a durable chat write to a run: writes of earlier lives are refused from here on. A
# chat that ends in one life ends in each later one.
TAKE: Final = """
local had = redis.call('HMGET', KEYS[1], 'run', 'over', 'life', 'worker', 'ends')
local ends = ARGV[7] == '1' or (had[1] == ARGV[2] and had[5] == '1')
if had[1] == ARGV[2] then
  if had[2] == '1' or tonumber(had[3] or '0') > tonumber(ARGV[4]) then return 0 end
elseif had[1] and had[2] ~= '1'
  and (had[4] == '-' or redis.call('EXISTS', ARGV[1] .. had[4]) == 1) then return 0 end
redis.call('HSET', KEYS[1], 'run', ARGV[2], 'worker', '-', 'header', ARGV[3],
  'over', '0', 'life', ARGV[4], 'ends', ends and '1' or '0')
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.pcall('XADD', KEYS[2], ARGV[4] .. '-0', 'k', ARGV[6])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
return 1
"""
# Tell which runs were replaced, or have lost their process.
MISSING: Final = """
local gone = {}
for n, key in ipairs(KEYS) do
  local had = redis.call('HMGET', key, 'run', 'worker')
  local there = had[1] == ARGV[n + 1] and had[2]
    and (had[2] == '-' or redis.call('EXISTS', ARGV[1] .. had[2]) == 1)
  if not there then gone[#gone + 1] = n - 1 end
end
return gone
"""
# Mark a run as over, unless a later life of its chat writes to it.
OVER: Final = """
local had = redis.call('HMGET', KEYS[1], 'run', 'life')
if had[1] ~= ARGV[1] or tonumber(had[2] or '0') > tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], 'over', '1')
return 1
"""
# End the run of a durable chat that is over, but whose end was not written: its readers reload.
# A life of the chat passes its number: it must not end the run of a later one.
CLOSE: Final = """
local had = redis.call('HMGET', KEYS[1], 'run', 'header', 'over', 'life', 'worker')
local life = ARGV[3] ~= '' and ARGV[3] or had[4] or '1'
if not had[2] or had[3] == '1' or had[5] ~= '-' or tonumber(had[4] or '0') > tonumber(life)
  or cjson.decode(had[2]).chat_id ~= ARGV[2] then return 0 end
redis.pcall('XADD', ARGV[1] .. had[1], life .. '-*', 'x', 'lost')
redis.call('PEXPIRE', ARGV[1] .. had[1], ARGV[4])
redis.call('HSET', KEYS[1], 'over', '1')
return 1
"""


class Names:
    """The names of the keys."""

    def __init__(self, prefix: str) -> None:
        self.worker_prefix = f"{prefix}worker:"
        self._prefix = prefix

    def run(self, key: str) -> str:
        return f"{self._prefix}run:{key}"

    def log(self, key: str, run: str) -> str:
        return f"{self._prefix}log:{key}:{run}"

    def logs(self, key: str) -> str:
        """The pattern of the names of all logs of a conversation."""
        return re.sub(r"([\\*?\[\]^-])", r"\\\1", self.log(key, "")) + "*"

    def worker(self, id: str) -> str:
        return f"{self.worker_prefix}{id}"

    def inbox(self, id: str) -> str:
        return f"{self._prefix}inbox:{id}"

    def events(self, partition: int) -> str:
        return f"{self._prefix}told:{partition}"

    def members(self, name: str) -> str:
        return f"{self._prefix}seen:{name}"


def check_url(url: str) -> None:
    """Raise UsageError for an invalid address, without showing it: it may hold a password."""
    try:
        scheme = urlsplit(url).scheme
    except ValueError:
        scheme = ""
    if scheme not in ("redis", "rediss", "unix"):
        raise UsageError("the relay's address must begin with redis://, rediss:// (TLS) or unix://")


def connect(url: str) -> Any:
    """Open a connection that reconnects on its own."""
    try:
        redis = import_module("redis.asyncio")
        import_module("hiredis")
    except ImportError as exc:
        raise UsageError(
            "a relay needs redis, which is not installed: pip install 'hookline[redis]'"
        ) from exc
    try:
        errors = import_module("redis.exceptions")
        retry = import_module("redis.asyncio.retry").Retry(
            import_module("redis.backoff").ExponentialBackoff(cap=0.4, base=0.05),
            2,
            supported_errors=(errors.ConnectionError,),  # not of a server that is silent
        )
        pool = redis.BlockingConnectionPool.from_url(
            url, max_connections=1, timeout=None, retry=retry, socket_timeout=SILENCE
        )
        pool.connection_class = _packing(pool.connection_class)
        return redis.Redis.from_pool(pool)
    except ValueError:
        raise UsageError(
            "the relay's address must look like redis://user:password@host:6379/0"
        ) from None


def _packing(connection: type[Any]) -> type[Any]:
    """A connection whose commands hiredis packs, and that swallows no cancellation. The error of a
    Redis that cannot serve now is one of `away`.

    redis.asyncio packs commands in Python, which costs more than all else of reading 1,000 streams.
    It sends them inside `asyncio.wait_for`, which on Python 3.11 ignores a cancellation that comes
    as the command is sent: a task that reads in a loop would then never end.
    """
    packer = import_module("redis.connection").HiredisRespSerializer()

    async def send_packed_command(self: Any, command: Any, check_health: bool = True) -> None:
        task = asyncio.current_task()
        before = 0 if task is None else task.cancelling()
        await connection.send_packed_command(self, command, check_health)
        if task is not None and task.cancelling() > before:
            await self.disconnect(nowait=True)  # nobody reads the answer
            raise asyncio.CancelledError

    errors = import_module("redis.exceptions")

    async def read_response(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return await connection.read_response(self, *args, **options)
        except errors.ResponseError as exc:
            if str(exc).startswith(UNFIT):
                raise errors.ReadOnlyError(str(exc)) from exc
            raise

    own = {
        "pack_command": staticmethod(packer.pack),
        "send_packed_command": send_packed_command,
        "read_response": read_response,
    }
    return type(connection.__name__, (connection,), own)


def outages() -> tuple[type[BaseException], ...]:
    """Return the exceptions raised if Redis is not reachable, does not answer, or cannot write."""
    errors = import_module("redis.exceptions")
    silent = (errors.ConnectionError, errors.TimeoutError, errors.BusyLoadingError, OSError)
    unfit = (errors.OutOfMemoryError, errors.ReadOnlyError, errors.MasterDownError)
    return (*silent, *unfit)


def unreachable(exc: BaseException) -> StoreError:
    """Build the error for an unusable Redis, without its address or credentials."""
    return StoreError(
        f"the relay's Redis cannot be used ({type(exc).__name__}); check that the address is "
        "right, that the server runs, and that it accepts the credentials"
    )
