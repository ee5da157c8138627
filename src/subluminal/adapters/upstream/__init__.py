"""The servers behind a door: a process. Started before anything heavy is imported, ended surely."""
