"""Commands that run an agent or stop one: `sub run`, `sub agent`, `sub kill`."""
