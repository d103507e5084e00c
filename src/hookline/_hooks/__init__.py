"""Hooks: the table of points, registrations, the rules for calling hooks, and the bus.

Imports `_base` and `_model`. Nothing here depends on a chat: the call rules get everything that
they need from a chat as arguments.
"""
