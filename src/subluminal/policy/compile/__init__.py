"""From a bundle to the snapshot that producers obey, and how a snapshot is found again cheaply."""
