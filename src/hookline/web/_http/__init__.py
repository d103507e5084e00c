"""HTTP over ASGI: messages, server-sent events, access, refusals. Knows no chat."""
