"""What all engines share: the rule about deaths, waits, and what workers of a machine know."""
