"""Profiles of hypothesis: the same examples on every run of `make test`; new ones, and many, with `make fuzz`."""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline: on a loaded machine it measures the machine.
settings.register_profile("test", deadline=None, derandomize=True)
settings.register_profile("fuzz", deadline=None, max_examples=5000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))
