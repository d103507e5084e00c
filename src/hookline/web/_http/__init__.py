"""HTTP over ASGI: requests and replies, server-sent events, access, refusals. Knows no chat."""
