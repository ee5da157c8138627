"""`sub promote`: one call, and the narrowest change of a policy that lets it through, or refuses its like.

    wish       what was asked for; who may not ask
    making     the change, and whether it does what it is for
    session    the change in the state of the run
    evidence   what it would have changed in the past
    record     the event of it

`policy/edit` says what a change is, and how it comes into the text of a policy.
"""
