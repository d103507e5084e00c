"""The ground: errors, JSON, messages, events, what hooks return, the run, the runtime seam, time.

Imports nothing of the other packages. Payloads are frozen data; what a chat *does* with them is
`_chat`.
"""
