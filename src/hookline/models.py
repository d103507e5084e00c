"""The seam to language models, for those who write an adapter."""

from hookline._messages import FinishReason
from hookline._model import (
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
]
