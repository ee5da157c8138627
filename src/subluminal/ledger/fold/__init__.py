"""What a call and a run became, out of their events: pure, no SQL, no files, no clock.

Whoever tells of a call or counts calls asks here: the store, tail, show, reports, verdicts, replay.
"""
