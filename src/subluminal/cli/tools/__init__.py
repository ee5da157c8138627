"""`sub tools`: what servers say of their tools, what of it was approved, and what has changed."""
