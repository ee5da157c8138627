"""`sub replay`: the command, and how its reports are drawn."""
