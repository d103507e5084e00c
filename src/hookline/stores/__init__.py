"""Stores that outlive the process: SQLite and PostgreSQL, based on SQLAlchemy.

Install them with `pip install "hookline[sqlite]"` or `"hookline[postgres]"`. The driver of the
database is imported only when a store is created.
"""

from hookline.stores._sql_store import SQLStore

__all__ = ["SQLStore"]
