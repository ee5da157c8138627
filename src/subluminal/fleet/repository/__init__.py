"""The publisher's side of a fleet: a TUF repository (python-tuf) whose origin is any static directory.

    DIR/origin/      what machines fetch: put it on any web server or object store (metadata/, targets/)
    DIR/root.json    what machines are given by hand, to know the fleet by
    DIR/keys/        the keys that are at hand here (0700); those of root and of authors belong elsewhere
    DIR/fleet.json   how long what is signed holds

    roles.py         which role signs what, with how many keys, and for how long: the metadata
    store.py         the files
    trusted.py       of each role the newest that the right keys have signed
    publishing.py    what is done: init, tenants, publish, stop
    online.py        snapshot and timestamp
    looking.py       what a repository holds
    revoking.py      a key is taken from its role

Root is offline, 2 of 3. Each tenant's policies are a delegated role with its author's key; stops are one with a key of
their own. Snapshot and timestamp are online and short-lived. Nothing here is a service: whoever holds a key runs a
command, and what cannot be signed for want of a key is said.
"""
