"""Convert sources and files in the responses of providers to chunks. Pure.

Sources and files are for people to see. A malformed one is left out, and the answer continues. The
data that must go back to a provider is kept in the records and in the meta of texts.
"""

from __future__ import annotations

import binascii
import struct
from base64 import b64decode
from collections.abc import Iterable
from mimetypes import guess_type
from typing import Any, Final

from hookline import File, Image, Source
from hookline.models import Chunk, FileChunk, SourceChunk
from hookline.providers._adapter.json_fields import is_object

UNKNOWN: Final = "application/octet-stream"
RATE: Final = 24_000  # the sample rate of generated audio, unless the response states another


class Attachments:
    """Collects the sources and files of one answer, without duplicates."""

    def __init__(self) -> None:
        self._keys: set[tuple[object, ...]] = set()

    def source(
        self,
        entry: object,
        *,
        url: str = "url",
        title: str = "title",
        name: str = "",
    ) -> Iterable[Chunk]:
        """Return a source; each argument is the name of a field in `entry`, or "" for no field."""
        if not is_object(entry):
            return
        where, heading, file = (_text(entry.get(field)) for field in (url, title, name))
        if where is None and heading is None and file is None:
            return
        key = ("source", where) if where is not None else ("source", heading, file)
        if key in self._keys:
            return
        self._keys.add(key)
        kind = guess_type(file)[0] if file is not None else None
        yield SourceChunk(Source(url=where, title=heading, name=file, media_type=kind))

    def stored_file(
        self, meta: dict[str, Any] | None, *, id: object, name: object = None
    ) -> Iterable[Chunk]:
        """Return a file that the provider created and stored; `meta` identifies the stored file."""
        file = _text(name)
        if _text(id) is None or ("file", id) in self._keys:
            return
        self._keys.add(("file", id))
        kind = (guess_type(file)[0] if file is not None else None) or UNKNOWN
        yield FileChunk(File(media_type=kind, name=file, meta=meta))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


# ── files ───────────────────────────────────────────────────────────────────────────────────


def media_part(media_type: str, data: bytes, meta: dict[str, Any] | None = None) -> Image | File:
    """Return the image or file that a model generated."""
    kind = Image if media_type.startswith("image/") else File
    return kind(media_type=media_type, data=data, meta=meta)


def pictured(url: object, media_type: str = "image/png") -> Iterable[Chunk]:
    """Return a generated image from its URL or data URL."""
    if not isinstance(url, str) or not url:
        return
    if not url.startswith("data:"):
        yield FileChunk(Image(media_type=media_type, url=url))
        return
    head, _, text = url.partition(",")
    if head.endswith(";base64"):
        yield FileChunk(media_part(head[5:-7].partition(";")[0] or media_type, decoded(text)))


def decoded(text: str) -> bytes:
    """Decode base64 in either alphabet; raises ValueError for anything else."""
    try:
        return b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4))
    except binascii.Error as exc:
        raise ValueError(f"the data of a file must be base64, not {text[:20]!r}…") from exc


class Sound:
    """Collects audio that arrives in pieces. Raw samples become a WAV file, for audio players."""

    def __init__(self, media_type: str = "audio/pcm") -> None:
        self.media_type = media_type
        self._pieces: list[bytes] = []

    def add(self, data: bytes) -> None:
        """Add a piece."""
        self._pieces.append(data)

    def file(self, meta: dict[str, Any] | None = None) -> Iterable[Chunk]:
        """Return the complete audio; nothing if no piece has arrived."""
        data, self._pieces = b"".join(self._pieces), []
        if not data:
            return
        kind, *parameters = [part.strip().lower() for part in self.media_type.split(";")]
        if kind not in ("audio/pcm", "audio/l16"):
            yield FileChunk(media_part(kind, data, meta))
            return
        options = {part.partition("=")[0]: part.partition("=")[2] for part in parameters}
        rate = int(options["rate"]) if options.get("rate", "").isdecimal() else RATE
        yield FileChunk(media_part("audio/wav", _wav(data, rate), meta))


def _wav(samples: bytes, rate: int) -> bytes:
    """Add the header of a WAV file to 16-bit mono samples."""
    form = struct.pack("<HHIIHH", 1, 1, rate, 2 * rate, 2, 16)
    size = len(samples)
    head = b"RIFF" + struct.pack("<I", 36 + size) + b"WAVEfmt " + struct.pack("<I", len(form))
    return head + form + b"data" + struct.pack("<I", size) + samples
