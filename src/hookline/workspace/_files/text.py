"""The text of a file: its encoding, its byte order mark and its line ends, which a change keeps."""

from __future__ import annotations

import codecs
from typing import Final, NamedTuple

from hookline.workspace._errors import NotTextError

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Form(NamedTuple):
    """How a text is written to a file."""

    encoding: str = "utf-8"
    mark: bytes = b""
    newline: str = "\n"


PLAIN: Final = Form()


def decode(data: bytes, path: str) -> tuple[str, Form]:
    """Return the text of a file with `\\n` as line ends; raises NotTextError."""
    mark, encoding = next((pair for pair in _MARKS if data.startswith(pair[0])), (b"", "utf-8"))
    if encoding == "utf-8" and b"\0" in data:
        raise NotTextError(
            f"{path!r} is binary ({len(data):,} bytes); look at it with a command, such as xxd"
        )
    try:
        text = data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as exc:
        raise NotTextError(
            f"{path!r} is not {encoding.upper()} (byte {exc.start:,}); convert it with a command, "
            "as in: iconv -f latin1 -t utf-8"
        ) from None
    ends = text.count("\r\n")
    if ends and ends == text.count("\n") and "\r" not in text.replace("\r\n", ""):
        return text.replace("\r\n", "\n"), Form(encoding, mark, "\r\n")
    return text, Form(encoding, mark)


def encode(text: str, form: Form) -> bytes:
    """Return the bytes of a text in the form of the file that it was read from."""
    if form.newline != "\n":
        text = text.replace("\r\n", "\n").replace("\n", form.newline)
    return form.mark + text.encode(form.encoding, "surrogatepass")
