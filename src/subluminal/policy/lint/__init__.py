"""Everything that can be wrong with a bundle, each finding with its place and its fix."""
