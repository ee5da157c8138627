"""A run on this machine: its shared state and the files of it, who is registered, which processes belong to it."""
