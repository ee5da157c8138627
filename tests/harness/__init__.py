"""Real processes and scripts for tests: a fake MCP server, an agent driver, an event sink, a sans-IO playbook."""
