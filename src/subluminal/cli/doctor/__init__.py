"""`sub doctor`: one module for each area that is looked at."""
