"""The HTTP door: clients that speak MCP over HTTP."""
