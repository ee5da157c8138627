"""`sub ui`: the page, opened; and what it asks of rooms that the daemon cannot reach."""
