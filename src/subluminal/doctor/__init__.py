"""What `sub doctor` examines: one module for each area, and findings as data that any page or program can show.

Nothing here draws on a terminal or changes anything.
"""
