"""The chat page: three files of this package, sent as they are.

The page loads nothing from anywhere else and runs no script but its own, and its headers say so to
the browser.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from hookline.web._http import Reply

_FILES: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_HEADERS: Final = (
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'",
    ),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-cache"),
)


@cache
def _read(name: str) -> bytes:
    return (files("hookline.web") / "page" / name).read_bytes()


def page_file(path: str) -> Reply | None:
    """The file of the page at a path, None where there is none."""
    found = _FILES.get(path)
    if found is None:
        return None
    name, media_type = found
    return Reply(body=_read(name), media_type=media_type, headers=_HEADERS)
