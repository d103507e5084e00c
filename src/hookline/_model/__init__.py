"""The model's side: the Model protocol, tools and their schemas, scopes, typed answers.

Imports `_base` only. Knows nothing of hooks, conversations or chats.
"""
