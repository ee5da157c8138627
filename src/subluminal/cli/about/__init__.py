"""Commands about `sub` itself: doctor, help, version, completion, the hash of arguments, and the shim's help."""
