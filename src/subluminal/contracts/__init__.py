"""What we promise: event stream, policy bundle, decisions and errors, identity, canonical JSON.

Rules: imports nothing of ours, does no I/O, owns no clock. Names are the contract's own words.
`vocabulary` and `errors` are plain constants and classes that the shim may import at start-up;
`events` and `policy` hold the msgspec types for everyone who is not in a hurry.
Anyone may import from here.
"""
