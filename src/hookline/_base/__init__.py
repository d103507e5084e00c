"""The lowest layer: errors, JSON, messages, events, return types of hooks, the run and the runtime.

Imports nothing from the other packages. Payloads are frozen data; the code that acts on them in a
chat is in `_chat`.
"""
