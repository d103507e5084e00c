"""The recording of docs/workspace.md: scripts/dev/pictures writes it, here it is only made."""

from __future__ import annotations

from xml.etree import ElementTree

from ._recording import record


def test_the_recording_shows_a_whole_chat(base, folder, sandbox):
    folder.rmdir()
    svg = record(base)
    assert len(svg.encode()) < 200_000
    texts = [element.text or "" for element in ElementTree.fromstring(svg).iter()]
    for words in (
        "Run bash? [y/a/n/e]",
        "Change prices.py?",
        "+    return round(net * 1.19, 2)",
        "Prices have two decimals now, and the test passes.",
        "the files are as they were before the last change",
    ):
        assert any(words in text for text in texts), words
