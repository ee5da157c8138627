"""Every adapter behind one small interface (`interface`), so that a contract test is written once and runs over all.

A new adapter is one implementation and one line in `every`; what it cannot do it says in `lacks`, with the reason that
the skipped test then shows.
"""
