"""Stores that outlive the process: SQLite and PostgreSQL, on SQLAlchemy.

`pip install "hookline[sqlite]"` or `"hookline[postgres]"`; nothing of it is imported before a
store is made.
"""

from hookline.stores.sql import SQLStore

__all__ = ["SQLStore"]
