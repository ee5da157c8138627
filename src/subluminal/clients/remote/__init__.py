"""Servers that a client reaches over HTTP: reading such entries, routing them through the shim, and asking the servers.

An entry with a URL becomes an entry with a command, in place: the URL's member becomes `command` (with `args` behind
it), the headers become variables of `env`. Values keep their spelling, so that the client still fills in references.
"""
