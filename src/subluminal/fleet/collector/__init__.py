"""`sub collector`: takes the segments of many machines, commits them to a store and acknowledges what is committed.

Rules: it keeps nothing of its own between two requests but what can be lost (quotas, counters), so that any number of
them may stand behind a load balancer. Whose segment it is comes from the credential, never from the body. Nothing is
acknowledged before it is committed. Imported by `cli` alone.
"""
