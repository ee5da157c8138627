"""Agent clients' configuration files: find MCP servers, route them through the shim, and put everything back.

Rules: a user's file is changed only atomically, only after a backup, and only in the entries we wrap.
"""
