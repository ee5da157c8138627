"""The machine's side of a fleet: fetch and verify by TUF, compile, lay. What fails leaves the last good in force.

fetching.py    over HTTP, within bounds of time and size
origin.py      what is trusted of the fleet's origin; each way of being refused as a sentence
laying.py      what was verified, compiled and put where shims find it (`policy/laid`)
joining.py     join and leave
"""
