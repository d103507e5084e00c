"""Record the answers of a model and the results of tools once, and replay them in tests.

    with cassette("tapes/refund.json") as tape:
        response = await agent.chat("Pay me back.", hooks=[tape])

The first run calls the model and writes the file. Later runs read the file, call no model and run
no tool, and fail with a readable difference if a request or a call is not the recorded one.

Experimental: this module may change in a minor version.
"""

from hookline.testing.cassette._cassette import Action, Cassette, Mode
from hookline.testing.cassette._context_manager import cassette
from hookline.testing.cassette._difference import CassetteError, Difference
from hookline.testing.cassette._tracks import Abort, CallEntry, Request, Track, read_cassette

__all__ = [
    "Abort",
    "Action",
    "CallEntry",
    "Cassette",
    "CassetteError",
    "Difference",
    "Mode",
    "Request",
    "Track",
    "cassette",
    "read_cassette",
]
