"""The runs of a server: their events and hooks, limits and queue. Knows no protocol."""
