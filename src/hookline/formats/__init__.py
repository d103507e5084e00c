"""Convert histories to and from the message formats of OpenAI (chat completions) and Anthropic.

Pure functions on dicts, without either SDK. Data that a format cannot express (ids, usage) is lost
when it is written. Content that hookline cannot express raises an error and is never dropped. Hints
to a provider, such as `cache_control` or the `detail` of an image, are dropped.

The adapters in `hookline.providers` do not share this mapping. They read events of a stream, never
stored messages, and write a request for one server: with ids and signed data that this server
accepts, with media where its dialect has them, and they leave out what it cannot take. Here nothing
is left out silently, and each refusal names the message and the part.
"""

from hookline.formats._anthropic import from_anthropic, to_anthropic
from hookline.formats._openai import from_openai, to_openai
from hookline.formats._read import Imported

__all__ = ["Imported", "from_anthropic", "from_openai", "to_anthropic", "to_openai"]
