"""Benchmarks: hookline against the same work written by hand. Run by scripts/bench, no tests."""
