"""Fetches through a proxy with the libraries that servers in Python use. [library, url] a line in; `null` out."""

import json
import sys
import urllib.request
from functools import cache
from typing import Any

PROXY = sys.argv[1]


def with_urllib(url: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": PROXY, "https": PROXY}))
    opener.open(url, timeout=3).close()


def with_requests(url: str) -> None:
    import requests

    requests.get(url, proxies={"http": PROXY, "https": PROXY}, timeout=3, allow_redirects=False)


@cache
def client() -> Any:
    import httpx2

    return httpx2.Client(proxy=PROXY, timeout=3)


def with_httpx(url: str) -> None:
    client().get(url)


LIBRARIES = {"urllib": with_urllib, "requests": with_requests, "httpx": with_httpx}

for line in sys.stdin:
    library, url = json.loads(line)
    try:
        # Others than http have nothing to do with the proxy: urllib would open a file.
        if "http" in url.lower():
            LIBRARIES[library](url)
    except Exception:  # every way to refuse a URL is as good as another
        pass
    print("null", flush=True)
