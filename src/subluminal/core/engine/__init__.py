"""Policy evaluation over run state: pure, deterministic, time passed in. Reached through the gate alone."""
