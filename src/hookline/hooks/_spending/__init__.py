"""Limits of steps, tokens, seconds and money, and the meter that counts them."""
