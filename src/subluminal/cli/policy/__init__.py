"""`sub policy`: one module for each of its commands, imported when it is used."""
