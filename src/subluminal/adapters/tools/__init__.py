"""The tools of clients: what their names mean, and which files their patches name."""
