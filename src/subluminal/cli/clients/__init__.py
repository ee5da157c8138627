"""`sub import` and `sub restore`: clients' files."""
