"""What a server may make us keep, and how long we wait for whom."""

from __future__ import annotations

# Requests under way at the server; further ones wait, and the client is not read any more once too many do.
MAX_REQUESTS = 128
MAX_WAITING = 1024
# Their bodies are kept as long, for they may have to be sent again.
MAX_REQUEST_BYTES = 32 * 1024 * 1024
MAX_WAITING_BYTES = 8 * 1024 * 1024
# Connections beyond those of requests: notifications, answers, the streams that are listened to.
MORE_CONNECTIONS = 64
# What of one answer waits until the client takes it.
ANSWER_HIGH_WATER = 256 * 1024
# The body of a refusal: a JSON-RPC error is far smaller.
MAX_REFUSAL_BYTES = 64 * 1024
REFUSAL_SECONDS = 5
# A notification goes before what the client says next, unless its server takes longer than this to accept it.
ACCEPT_SECONDS = 5
# After the last reply of a stream: its end follows within moments, and then the connection can be used again.
STREAM_END_SECONDS = 1
# After the client has cancelled a request: its reply may still be on its way.
CANCEL_SECONDS = 5
# Until the stream of the old transport names where messages go.
ENDPOINT_SECONDS = 30
# The server is told that the session is over; the client does not wait for long, and after a signal hardly at all.
GOODBYE_SECONDS = 0.8
HURRIED_GOODBYE_SECONDS = 0.2

# A stream that has ended is opened again after this, or after what its server asks for.
RETRY_SECONDS = 1.0
MIN_RETRY_SECONDS = 0.02
MAX_RETRY_SECONDS = 300.0
# One that ends at once, or cannot be opened, is opened again ever more rarely, and after so many times not unasked.
SHORT_STREAM_SECONDS = 10.0
MAX_BACKOFF_SECONDS = 60.0
MAX_FAILURES = 5
# Longer is no id of an event and no id of a session.
MAX_ID_BYTES = 4096
