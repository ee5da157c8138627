"""`sub login` and `sub logout`."""
