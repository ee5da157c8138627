"""YAML and JSON as trees of values with their places, read as data and nothing else."""
