"""A request that is refused: its status, and one sentence for the client."""

from __future__ import annotations


class Refused(Exception):
    """The request is refused. `status` is the HTTP status; `text` is one sentence for the client.
    `headers` are added to the response. The parsers raise this exception. `app` sends it as a
    response; your own routes must send the response themselves.
    """

    def __init__(self, status: int, text: str, **headers: str) -> None:
        self.status = status
        self.text = text
        self.headers = {name.replace("_", "-").lower(): value for name, value in headers.items()}
        super().__init__(text)
