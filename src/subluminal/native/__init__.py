"""The few functions that are done in C where they were built: `chosen.core` has them, or is None.

A twin in Python is the specification of each. It stands in the room that the function belongs to; the function in C
takes only what it is sure of and leaves everything else to the twin. Both give the same answers, so which of them works
changes nothing but the speed.

    text.h          JSON as (pointer, length)
    messages.c      calls and replies                       mcp/message/wire
    arguments.c     arguments and their canonical form      contracts/canonical
    quoting.c       text as a JSON string                   core/emit/emitter
    credentials.c   whether RE2 has to look                 core/redact/prefilter
    digests.c       the hash of arguments                   contracts/digest
    filling.c       events out of their templates           core/emit/emitter
    tables.c        the table of a run's state              host/run/table

Imports nothing of ours; everybody may import it.
"""
