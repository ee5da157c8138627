"""OpenAI Responses: what Codex and the SDKs speak.

api             the API as doors see it
items           which items of an answer are calls of the client, and what they say
events          one event of a stream              streamed     a stream: calls are held, the rest flows
held            a call that is held                unstreamed   an answer that is one JSON object
response        an answer as a whole               judged       one judgement for each call of an answer
told            a refused call at the client, and as the provider knows it
request         results and history of a request   offered      tools that the provider would run itself
remembered      refused calls in histories that the provider keeps
"""
