"""The contract suite: every requirement id in `manifest`, tests marked with ids, checked in both directions."""
