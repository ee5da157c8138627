"""The public MCP conformance suite, on a server and on a client: direct, and through us. Only differences count.

    make test-conformance

`reference_server` and `reference_client` are what the suite is run on, `ways` how it reaches them, `suite` how it is
run, and `python -m conformance` compares.
"""
