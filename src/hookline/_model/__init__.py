"""The model side: the Model protocol, the assembly of answers, structured output, and prices.

Imports only `_base`, `_record` and `_tools`. Does not depend on hooks, conversations or chats.
"""
