"""Runs of other processes, read from their streams."""
