"""The built page as bytes. Only these names are served: no path of a request is ever joined to a directory."""

from __future__ import annotations

from importlib.resources import files

# What the browser asks for -> the file, and what it is.
SERVED = {
    "/app.js": ("app.js", "text/javascript"),
    "/app.css": ("app.css", "text/css"),
    "/landing.js": ("landing.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
# The surfaces: all of them are one document, which reads its address.
SURFACES = ("/", "/overview", "/runs", "/run", "/call", "/compare", "/policy", "/tools", "/hints")


def content(name: str) -> bytes:
    return (files(__package__) / name).read_bytes()
