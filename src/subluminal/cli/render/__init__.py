"""The terminal: colour, columns, times and calls as people read them, JSON and CSV for machines."""
