"""For hatchling: a wheel with the C part where SUB_BUILD=c asks for it. Everybody else gets the pure wheel.

A build that fails says so and leaves the wheel pure: it installs, and works the same.
"""

from __future__ import annotations

import os
import runpy
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or os.environ.get("SUB_BUILD") != "c":
            return
        native = os.path.join(self.root, "src", "subluminal", "native")
        # Not imported: the package's requirements need not be here.
        builder = runpy.run_path(os.path.join(native, "build.py"))
        try:
            path = builder["build"](native)
        except builder["BuildError"] as error:
            self.app.display_warning(f"The C part was not built: {error}. The wheel is pure, and works the same.")
            return
        build_data["artifacts"].append(f"/src/subluminal/native/{os.path.basename(path)}")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
