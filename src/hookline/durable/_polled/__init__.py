"""Workers of the engines that are polled: PostgreSQL and SQLite."""
