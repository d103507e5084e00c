"""The runs of a server: their items, limits and queue. Knows no protocol."""
