"""Who writes events: one identity with its gate, policies, run state, sink and doorbell."""
