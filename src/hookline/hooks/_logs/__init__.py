"""What is written down of a chat: an audit file, and log records."""
