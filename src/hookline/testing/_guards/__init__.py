"""Proofs for guards: the paths to a tool, and the probe that sends a call over each."""
