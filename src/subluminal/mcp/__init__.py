"""What MCP means on any transport, without I/O and without a clock: requests, replies, calls of several legs, tasks,
cancellation, tool annotations, refusals. Framing belongs to the doors (`adapters`).
"""
