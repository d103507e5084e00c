"""Hooks: the table of points, registrations, the rules by which hooks are called, the bus.

Imports `_base` and `_model`. Nothing here knows a chat: the call rules take what they need of one
as arguments.
"""
