"""OpenTelemetry out of the ledger: a span for each call that has ended, one for each run, and the figures of
`ledger.read.figures`; OTLP over HTTP, as protobuf. Off unless an endpoint is named.

Never arguments, results, previews, hashes of them, or what a server or a rule says in words. Ids are derived from those
of the run and the call, so that what is sent twice is the same span. `opentelemetry-proto` (extra `fleet`) is imported
when something is to be sent, and never by a shim. Imported by `fleet.keeper` and `cli`.
"""
