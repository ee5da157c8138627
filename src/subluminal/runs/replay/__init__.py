"""A recorded run again, with nothing executed: its calls answered from the record, with the policy in the loop.

    tape         what a run has recorded, as far as it can be answered: its calls, results, lists
    picking      which recorded call a call is; what is nearest to one that was not made
    answering    the servers of the run, out of the record
    upstream     such a server as the relay knows one; `real`: the server itself, for calls that are not on record
    calls        the door's calls, at the recorded times
    session      the directory of one replay: a home of its own, and what its servers noted
    serving      one server of a replay on standard input and output
    agent        a whole agent in a replay: where its servers are
    comparing    what was the same, and what was not
    as_if        the run under another policy, without an agent

A replay charges nothing, records nothing and remembers nothing: it has a home of its own that goes with it.
"""
