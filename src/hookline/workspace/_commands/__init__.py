"""Command lines: what they run for certain, and the rules about them."""
