"""What a server says of itself, beside what its tools do: tools, prompts, resource templates, instructions, its name.

    items        one thing that a server says, with its fingerprint and one digest for each of its members
    texts        what in it a person would not see (hidden), and what reads like an order to a model (orders)
    names        names that look alike
    differences  what differs between two versions, as fields and as lines to read
    known        what was seen of a server, version by version
    pins         what a person has approved: a lock, as text
    standing     what one thing is, by all of this: its classes
    schemas      whether arguments fit an input schema, in bounded work

No I/O, no clock. Everybody above `contracts` may ask it; nothing here knows how a list came or where anything lies.
"""
