"""Histories in the message formats of OpenAI (chat completions) and Anthropic, both ways.

Pure functions on dicts, without anybody's SDK. What a format has no place for (ids, usage) is lost
in it; what hookline has no place for is refused and named, never dropped.
"""

from hookline.formats._anthropic import from_anthropic, to_anthropic
from hookline.formats._openai import from_openai, to_openai
from hookline.formats._read import Imported

__all__ = ["Imported", "from_anthropic", "from_openai", "to_anthropic", "to_openai"]
