"""The lowest layer: errors, JSON, messages, events, return types of hooks, and the run.

Imports nothing from the other packages. Payloads are frozen data; the code that acts on them in a
chat is in `_chat`.
"""
