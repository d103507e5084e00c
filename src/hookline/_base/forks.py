"""Locks that are taken before a fork.

A forked child has only the thread that forked. Without these locks it would inherit any lock that
another thread of its parent held at that moment, which nothing would ever release, and the
half-finished changes of that thread.
"""

import os
from threading import RLock


def lock_for_forks() -> RLock:
    """Return a lock for a module to keep and hold only briefly; a fork acquires it first."""
    lock = RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock
