"""Events in the very form that the provider writes: what they are is proven by one look at their bytes.

A pattern covers an event from its first byte to its empty line, and a string in it holds no quote that is not escaped.
So no member stands in it that was not seen, and no parser reads it differently. Everything else is read in full.
"""

from __future__ import annotations

import re

# Nothing here is looked at twice: what a repetition took, it keeps.
_STRING = rb'"[^"\\\x00-\x1f]*+(?:\\[^\x00-\x1f][^"\\\x00-\x1f]*+)*+"'
_EVENT = rb"event: %b\r?\ndata: \{%b\} *\r?\n\r?\n"
_DELTA = _EVENT % (
    rb"content_block_delta",
    rb'"type": ?"content_block_delta", ?"index": ?%b, ?"delta": ?\{"type": ?%b *\} *',
)
_SHOWN = rb'"(?:text_delta", ?"text|thinking_delta", ?"thinking|signature_delta", ?"signature)": ?' + _STRING
_PING = _EVENT % (rb"ping", rb'"type": ?"ping" *')

# A run of events that neither begin nor change a call. To whichever block they belong: none of them can hold one.
shown = re.compile(rb"(?:%b|%b)++" % (_DELTA % (rb"[0-9]+", _SHOWN), _PING)).match
# A piece of some call's arguments: its index, and the piece as a JSON string.
piece = re.compile(_DELTA % (rb"(0|[1-9][0-9]*)", rb'"input_json_delta", ?"partial_json": ?(%b)' % _STRING)).match
# Where an event ends, if lines end as they do everywhere.
end = re.compile(rb"\n\r?\n").search
