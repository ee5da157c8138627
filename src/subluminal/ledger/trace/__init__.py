"""One run as files: recorded in a directory, sealed as a bundle, verified anywhere."""
