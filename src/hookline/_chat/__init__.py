"""The engine: one chat from its input to its outcome.

Imports everything below it. It reaches the outside world – model, tool, hooks, store, clock –
through the runtime of `_base.runtime` alone.
"""
