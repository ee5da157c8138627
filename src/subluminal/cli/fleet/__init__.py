"""`sub fleet`: one module for each side. What a command does is in `fleet/`; here it is asked for and told."""
