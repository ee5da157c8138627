"""Calls put to the real engine on a clock of our own: explained, tested, simulated, judged again."""
