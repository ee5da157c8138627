"""The control loop on the terminal: what was refused and what followed, and letting a call through."""
