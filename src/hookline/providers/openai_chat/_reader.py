"""Convert the events of Chat Completions to chunks. Pure.

Servers deviate from the specification, so this reader accepts all known variants: calls without an
index or with the same index for all, arguments of null or as an object, the old `function_call`,
content as a list of parts, reasoning under two names or between tags, errors in a dozen forms, a
whole completion instead of a stream, and a stream that ends without [DONE].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from hookline import Usage
from hookline.models import (
    Chunk,
    Finish,
    FinishReason,
    PartEndChunk,
    ReasoningChunk,
    TextChunk,
    ToolCallChunk,
)
from hookline.providers._adapter.errors.failures import Exchange, is_error
from hookline.providers._adapter.ids import own_id
from hookline.providers._adapter.json_fields import (
    count,
    is_list,
    is_object,
    json_text,
    list_in,
    objects_in,
    text_in,
)
from hookline.providers._adapter.response_files import Attachments, Sound, decoded, pictured
from hookline.providers.openai_chat._request import META, THOUGHTS
from hookline.providers.openai_chat._think_tags import ThinkTags

_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "refusal",
}


class ChatReader:
    """Reads one response of Chat Completions, event by event.

    `sound`: the requested media type of audio. `tags` is set before the first event if the server
    may send reasoning between tags.
    """

    def __init__(self, exchange: Exchange | None = None, *, sound: str = "audio/pcm") -> None:
        self.done = False
        self._exchange = exchange or Exchange("openai", server=META)
        self.tags: ThinkTags | None = None
        self._reason: FinishReason | None = None
        self._usage: Usage | None = None
        self._model: str | None = None
        self._id: str | None = None
        self._calls: dict[int, int] = {}  # the server's index → ours
        self._ids: list[str] = []  # the id of each of our calls
        self._call_data: list[dict[str, Any]] = []  # the data to send back with each of our calls
        self._field: str | None = None  # the field that carries reasoning
        self._details: list[Any] = []
        self._logprobs: list[Any] = []
        self._has_refusal = False
        self._attachments = Attachments()
        self._notes: list[dict[str, Any]] = []  # annotations of the text
        self._cited: dict[str, Any] = {}  # lists of the sources of the whole answer
        self._sound = Sound(sound)
        self._voice = ""  # the id of the audio
        self._pictures: list[object] = []  # the addresses of images

    @property
    def finished(self) -> bool:
        """Whether the finish reason has arrived: if the connection then fails, nothing is lost."""
        return self._reason is not None

    def take(self, event: Any, /) -> Iterable[Chunk]:
        if self.done:
            return
        if event is None:
            self.done = True
            return
        if is_error(event):
            raise self._exchange.error(event)
        if not is_object(event):
            raise TypeError(f"an event is a {type(event).__name__}")
        self._model = text_in(event, "model") or self._model
        self._id = text_in(event, "id") or self._id
        if event.get("usage") is not None:
            self._usage = usage_of(event["usage"])
        for word in ("citations", "search_results"):  # Perplexity, xAI
            if is_list(event.get(word)):
                self._cited[word] = event[word]
        for choice in (event.get("choices") or ())[:1]:
            if is_error(choice):  # OpenRouter puts the error of a failed provider into the choice
                raise self._exchange.error(choice)
            yield from self._choice(choice)

    def _choice(self, choice: dict[str, Any]) -> Iterable[Chunk]:
        delta = choice.get("delta")
        if delta is None:
            delta = choice.get("message")  # a whole completion, from a server that cannot stream
        if is_object(delta):
            yield from self._delta(delta)
        if choice.get("usage") is not None:  # Kimi
            self._usage = usage_of(choice["usage"])
        logprobs = choice.get("logprobs")
        if is_object(logprobs) and is_list(logprobs.get("content")):
            self._logprobs += logprobs["content"]
        self._finish(text_in(choice, "finish_reason"))

    def end(self) -> Iterable[Chunk]:
        if self._reason is None:
            raise self._exchange.cut_off()
        if self.tags is not None:
            yield from self._tagged(self.tags.end())
        yield from self._thought()
        meta: dict[str, Any] = {"logprobs": self._logprobs} if self._logprobs else {}
        notes = {"annotations": self._notes} if self._notes else {}
        if notes and not self._ids:
            yield PartEndChunk("text", self._exchange.meta(notes))
        else:
            meta |= notes
        yield from self._sources_and_media()
        reason = self._reason
        if self._ids and reason == "stop":
            reason = "tool_calls"
        elif self._has_refusal and reason == "stop":
            reason = "refusal"
        yield Finish(
            finish_reason=reason,
            usage=self._usage,
            model=self._model,
            response_id=self._id,
            meta=self._exchange.meta(meta),
        )

    def _sources_and_media(self) -> Iterable[Chunk]:
        """Return the citations of the answer, and the media generated with its text."""
        for note in self._notes:
            yield from self._attachments.source(note.get("url_citation") or note)
        for entry in self._cited.get("search_results") or ():
            yield from self._attachments.source(entry)
        for entry in self._cited.get("citations") or ():
            yield from self._attachments.source(entry if is_object(entry) else {"url": entry})
        yield from self._sound.file(self._exchange.meta({"id": self._voice} if self._voice else {}))
        for url in self._pictures:
            yield from pictured(url)

    def _other_fields(self, delta: dict[str, Any]) -> Iterable[Chunk]:
        """Read the fields next to the content: annotations, audio with its transcript, images."""
        self._notes += objects_in(delta, "annotations")
        sound = delta.get("audio")
        if is_object(sound):
            self._voice = text_in(sound, "id") or self._voice
            self._sound.add(decoded(text_in(sound, "data")))
            if transcript := text_in(sound, "transcript"):
                yield from self._text(transcript)
        for entry in list_in(delta, "images"):
            place = entry.get("image_url") if is_object(entry) else None
            self._pictures.append(place.get("url") if is_object(place) else place)

    def _finish(self, reason: str) -> None:
        if reason == "error":
            raise self._exchange.error("the model failed in the middle of its answer")
        if reason:
            self._reason = _REASONS.get(reason, "other")

    def _thinking(self, delta: dict[str, Any]) -> Iterable[Chunk]:
        for field in THOUGHTS:
            thought = text_in(delta, field)
            if thought and self._field in (None, field):  # some servers use both names
                self._field = field
                yield ReasoningChunk(thought)
        details = delta.get("reasoning_details")
        if isinstance(details, list):
            json_text(details)  # raises if no store could keep it
            self._details += details

    def _delta(self, delta: dict[str, Any]) -> Iterable[Chunk]:
        yield from self._thinking(delta)
        content = delta.get("content")
        if is_list(content):
            yield from self._parts(content)
            content = None
        yield from self._other_fields(delta)
        text, refusal = text_in(delta, "content") if content else "", text_in(delta, "refusal")
        calls: Sequence[Any] = delta.get("tool_calls") or ()
        if is_object(delta.get("function_call")):
            calls = [{"index": 0, "function": delta["function_call"]}]
        if text and self.tags is not None:
            yield from self._tagged(self.tags.take(text))
        elif text:
            yield from self._text(text)
        if refusal:
            self._has_refusal = True
            yield from self._text(refusal)
        if calls:
            yield from self._thought()
        for call in calls:
            yield self._call(call)

    def _text(self, text: str) -> Iterable[Chunk]:
        yield from self._thought()
        yield TextChunk(text)

    def _tagged(self, pieces: Iterable[tuple[str, str]]) -> Iterable[Chunk]:
        for kind, text in pieces:
            if kind == "reasoning":
                yield ReasoningChunk(text)
            else:
                yield from self._text(text)

    def _parts(self, content: Iterable[Any]) -> Iterable[Chunk]:
        """Read content that is a list of parts (Mistral); a thinking part has parts itself."""
        for part in content:
            kind = part.get("type")
            if kind == "thinking":
                thought = part.get("thinking")
                for inner in thought if is_list(thought) else ({"text": thought},):
                    if text := text_in(inner, "text"):
                        yield ReasoningChunk(text)
            elif kind in ("text", "output_text") and (text := text_in(part, "text")):
                yield from self._text(text)

    def _thought(self) -> Iterable[Chunk]:
        """End the reasoning, and keep its original form to send it back."""
        meta: dict[str, Any] = {"field": self._field} if self._field else {}
        if self._details:
            meta["details"] = self._details
            self._details = []
        if meta:
            self._field = None
            yield PartEndChunk("reasoning", self._exchange.meta(meta))

    def _call(self, call: dict[str, Any]) -> Chunk:
        function: dict[str, Any] = call.get("function") or {}
        id, name = text_in(call, "id"), text_in(function, "name")
        value = function.get("arguments")
        arguments = json_text(value) if is_object(value) else text_in(function, "arguments")
        theirs = call.get("index")
        if theirs is None:
            theirs = self._place(id, name)
        if type(theirs) is not int:
            raise TypeError("index is not a number")
        ours = self._calls.get(theirs)
        if ours is None or (id and name and self._ids[ours] and id != self._ids[ours]):
            ours = self._calls[theirs] = len(self._ids)
            self._ids.append(id)
            self._call_data.append({})
            first = ToolCallChunk(index=ours, id=id or None, name=name)
            return first.replace(arguments=arguments, meta=self._call_meta(call, ours))
        return ToolCallChunk(index=ours, arguments=arguments, meta=self._call_meta(call, ours))

    def _call_meta(self, call: dict[str, Any], ours: int) -> dict[str, Any] | None:
        """Return the data to send back with the call: a foreign id, a signature of Gemini."""
        own = self._call_data[ours]
        own |= own_id(text_in(call, "id"))
        if is_object(call.get("extra_content")):
            own["extra_content"] = call["extra_content"]
        return self._exchange.meta(dict(own))

    def _place(self, id: str, name: str) -> int:
        """Return the position of a call without an index: a new id or a name begins a new call."""
        if id:
            matches = [theirs for theirs, ours in self._calls.items() if self._ids[ours] == id]
            return matches[0] if matches else len(self._ids)
        last = max(self._calls, default=-1)
        return last + 1 if name else max(last, 0)


def usage_of(usage: object) -> Usage | None:
    """Read the usage, if present. xAI does not count reasoning as tokens of the completion."""
    if not is_object(usage):
        return None
    prompt, completion = count(usage, "prompt_tokens"), count(usage, "completion_tokens")
    reasoning = count(usage, "completion_tokens_details", "reasoning_tokens")
    if reasoning > completion or prompt + completion + reasoning == count(usage, "total_tokens"):
        completion += reasoning
    return Usage(
        input_tokens=prompt,
        output_tokens=completion,
        cache_read_tokens=count(usage, "prompt_tokens_details", "cached_tokens"),
        cache_write_tokens=count(usage, "prompt_tokens_details", "cache_write_tokens"),
        reasoning_tokens=reasoning,
    )
