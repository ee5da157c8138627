"""One JSON-RPC message: what it is, and whether every sane parser would read it the same way."""
