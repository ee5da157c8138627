"""The page of `sub ui`, as built from `web/`: files for a browser, and `files`, which reads them. Imports nothing."""
