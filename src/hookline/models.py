"""The seam to language models, for those who write an adapter, and models by their names."""

from hookline._base.messages import FinishReason
from hookline._model.model import (
    ChatRequest,
    Chunk,
    Delta,
    Finish,
    Model,
    ModelRequest,
    ModelResponse,
    OutputSchema,
    PartEndChunk,
    ReasoningChunk,
    Settings,
    TextChunk,
    Timing,
    ToolCallChunk,
    model_name,
)
from hookline._resolve import resolve_model

__all__ = [
    "ChatRequest",
    "Chunk",
    "Delta",
    "Finish",
    "FinishReason",
    "Model",
    "ModelRequest",
    "ModelResponse",
    "OutputSchema",
    "PartEndChunk",
    "ReasoningChunk",
    "Settings",
    "TextChunk",
    "Timing",
    "ToolCallChunk",
    "model_name",
    "resolve_model",
]
