"""HTTP/1.1, both ways and strict: heads and bodies without I/O, connections, a bounded pool."""
