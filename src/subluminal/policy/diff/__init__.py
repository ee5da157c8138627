"""What changed between two policies, and which way: looser, tighter, or neither."""
