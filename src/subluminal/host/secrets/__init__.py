"""Secret values at rest, and which server gets which."""
