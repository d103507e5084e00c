"""Convert histories to and from the message formats of OpenAI (chat completions) and Anthropic.

Pure functions on dicts, without either SDK. Data that a format cannot express (ids, usage) is lost
when it is written. Content that hookline cannot express raises an error and is never dropped. Hints
to a provider, such as `cache_control` or the `detail` of an image, are dropped.
"""

from hookline.formats._anthropic import from_anthropic, to_anthropic
from hookline.formats._openai import from_openai, to_openai
from hookline.formats._read import Imported

__all__ = ["Imported", "from_anthropic", "from_openai", "to_anthropic", "to_openai"]
