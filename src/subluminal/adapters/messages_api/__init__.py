"""The model API's door: every tool call that a model emits is judged before a client can act on it.

service       `sub proxy messages` as a process         door        whose run a request belongs to, and what it asks for
targets       which request is what, and where it goes  asking      a request: read, restored, and sent on
answering     an answer: passed on as it comes, but for its tool calls
desk          one run: what was let through, what was offered; `calls`: a call as rules know it
"""
