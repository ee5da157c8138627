"""Agent back ends: real command-line agents run as children, their streams mapped to `AgentEvent`.

Rules: mapping is done without I/O; no raw line of an agent's output ever enters an event.
"""
