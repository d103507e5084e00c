"""The chat page: static files of this package, and the texts that an application sets for it.

The page loads nothing from other sites and runs no scripts but its own; its headers make the
browser enforce this.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from hookline import Usage
from hookline.points import as_tuple
from hookline.web._http.request_reply import Reply

_SCRIPTS: Final = (
    *("page", "dom", "server", "elements", "markdown", "view", "card", "timeline", "detail"),
    *("list", "compose", "look", "export", "inbox", "section", "policies", "rules", "workspace"),
)
_FILES: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    **{f"/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8") for name in _SCRIPTS},
}
_HEADERS: Final = (
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-cache"),
)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """The texts and options of the chat page, for `app(page=…)`."""

    title: str = ""
    """The title of the page before the first message; by default the agent's name."""
    description: str = ""
    """A sentence or two below the title."""
    starters: tuple[str, ...] = ()
    """Suggested questions; a click sends one."""
    details: bool = False
    """Whether the timeline shows model requests (with the system text) and changes by hooks."""
    price: Callable[[Usage], float] | None = None
    """Returns the price of a usage. Without this function, the cost of a step is not shown."""
    currency: str = "$"
    """The currency sign before a price."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "starters", as_tuple("starters", self.starters))


@cache
def _read(name: str) -> bytes:
    return (files("hookline.web._page") / "static" / name).read_bytes()


def page_file(path: str) -> Reply | None:
    """Return the file of the page at a path; None if there is none."""
    file = _FILES.get(path)
    if file is None:
        return None
    name, media_type = file
    return Reply(body=_read(name), media_type=media_type, headers=_HEADERS)
