"""The database: its schema, its single writer, its hash chain."""
