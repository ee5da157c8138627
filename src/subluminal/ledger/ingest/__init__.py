"""The way of events into the store: journals, sockets, and the last words of producers that were killed."""
