"""The model side: the Model protocol, tools and their schemas, scopes, and structured output.

Imports only `_base`. Does not depend on hooks, conversations or chats.
"""
