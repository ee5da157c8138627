"""The servers behind a door: a process, started before anything heavy is imported and ended surely; or a URL."""
