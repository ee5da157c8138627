"""`sub collector`: the service that takes decisions of many machines, and its tokens."""
