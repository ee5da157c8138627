"""Commands about `sub` itself: help, version, completion, the hash of arguments."""
