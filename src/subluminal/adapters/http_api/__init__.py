"""Plain HTTP APIs: methods and paths as tools."""
