"""The tools of a workspace."""
