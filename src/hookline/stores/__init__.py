"""Stores that outlive the process: SQLite and PostgreSQL, based on SQLAlchemy.

Install them with `pip install "hookline[sqlite]"` or `"hookline[postgres]"`. The driver of the
database is imported only when a store is created.
"""

try:
    from hookline.stores._sql import SQLStore
except ModuleNotFoundError as exc:
    raise ModuleNotFoundError(
        f"hookline.stores needs {exc.name}: pip install 'hookline[sqlite]' or 'hookline[postgres]'",
        name=exc.name,
    ) from exc

__all__ = ["SQLStore"]
