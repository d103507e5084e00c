"""The roads of a probe through the doors: web protocols, MCP, and a second process."""
