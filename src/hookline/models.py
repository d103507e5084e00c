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
from hookline._model.tool import ProviderTool
from hookline._resolve import MODEL_ENTRY_POINTS, resolve_model

__all__ = [
    "MODEL_ENTRY_POINTS",
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
    "ProviderTool",
    "ReasoningChunk",
    "Settings",
    "TextChunk",
    "Timing",
    "ToolCallChunk",
    "model_name",
    "resolve_model",
]
