"""`sub secrets`."""
