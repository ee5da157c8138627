"""`sub tail`: what it follows, what of it is wanted, and how it is drawn."""
