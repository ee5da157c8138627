"""What an argument may be, by what was seen: one kind of value a file. Each gives a `Limit`; None: nothing has support.

    fit(values, level) -> Limit | None

`level` widens: 0 is the narrowest form that the evidence bears. No level makes any value of two, a home of a directory,
or a rule out of what fewer than `SUPPORT` runs did.
"""
