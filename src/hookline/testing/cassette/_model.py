"""The models of a cassette: one writes the chunks of an answer down, the other plays them."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

from hookline import ModelRequest, errors
from hookline.models import Chunk, model_name
from hookline.testing._events import closed_after
from hookline.testing.cassette._scrub import Scrub, scrub_chunks
from hookline.testing.cassette._shape import fields_of


class CassetteModel:
    """Stands for the model of a request: it has the same name, provider and abilities."""

    def __init__(self, model: Any, answer: dict[str, Any]) -> None:
        self.name = model_name(model)
        self.provider = getattr(model, "provider", None)
        self.takes_schema = getattr(model, "takes_schema", False)
        self._model = model
        self._answer = answer


class RecordingModel(CassetteModel):
    """Passes the model's chunks on, and keeps them in `answer`, with the error at their end."""

    def __init__(self, model: Any, answer: dict[str, Any], scrub: Scrub) -> None:
        super().__init__(model, answer)
        self._scrub = scrub

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """Yield the chunks of the model."""
        chunks: list[dict[str, Any]] = []
        is_over = False
        try:
            stream: Any = self._model.stream(request.replace(model=self._model))
            async with closed_after(stream):
                async for chunk in stream:
                    chunks.append(fields_of(chunk))
                    yield chunk
            is_over = True
        except GeneratorExit:
            is_over = bool(chunks) and chunks[-1]["chunk"] == "finish"
            raise
        except Exception as exc:
            is_over = True
            self._answer["error"] = _error(exc, self._scrub)
            raise
        finally:
            self._answer["chunks"] = scrub_chunks(chunks, self._scrub)
            if not is_over:
                self._answer["ended"] = False


class RecordedModel(CassetteModel):
    """Yields the chunks of `answer`, and raises its error."""

    def __init__(
        self, model: Any, answer: dict[str, Any], wait: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(model, answer)
        self._wait = wait

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[Chunk]:
        """Yield the recorded chunks."""
        for chunk in self._answer["chunks"]:
            yield msgspec.convert(chunk, Chunk)
        if "error" in self._answer:
            raise _raised(self._answer["error"])
        if not self._answer.get("ended", True):
            await self._wait()


def _error(exc: Exception, scrub: Scrub) -> dict[str, Any]:
    error: dict[str, Any] = {"type": type(exc).__name__, "message": scrub(str(exc))}
    names = ("provider", "status", "code", "request_id", "retry_after", "retryable")
    values = {name: getattr(exc, name, None) for name in names}
    return {**error, **{name: value for name, value in values.items() if value is not None}}


def _raised(error: dict[str, Any]) -> Exception:
    """The recorded exception, of its own type if it is one of hookline's or of Python's."""
    options = dict(error)
    name, message = options.pop("type"), options.pop("message")
    kind: Any = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, errors.ModelError):
        return kind(message, **options)
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        with suppress(TypeError):  # a type that takes more than a text
            return kind(message)
    return errors.ModelError(
        f"the recorded model raised {name}: {message}; delete the cassette to record it again",
        retryable=options.get("retryable"),
    )
