"""The sandbox that runs commands, and what it is made of."""
