"""The trace of one chat: its spans, and the hooks that begin and end them."""
