"""The chat page: its files, its Markdown, and the timeline of a run."""
