"""A run on this machine: its shared state and the files of it, who takes part, which processes belong to it."""
