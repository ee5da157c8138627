"""Logins at remote servers: discovery, registration, tokens, and one refresh at a time over all processes."""
