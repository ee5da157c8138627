"""Anthropic Messages: requests, and answers as one JSON text or as an event stream.

api          the one value that doors take; errors in this API's form
request      what a request says: results, tools that the provider runs, and a body without some of them
restoring    refused calls in a history, put back as the provider emitted them
blocks       content blocks: which are calls of the client, which of the provider; a call under its refused name
stream       an answer as an event stream: `held` is the call that waits, `shapes` what passes with a quick look
whole        an answer as one JSON text
watched      calls that the provider carries out while we look on
usage        what the provider states of its own work
"""
