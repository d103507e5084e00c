"""The commands: one module each, and what several of them need."""
