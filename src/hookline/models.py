"""Interfaces for authors of model adapters, and functions that find a model by its name."""

from hookline._base.messages import FinishReason, Timing
from hookline._model.model import (
    ChatRequest,
    Chunk,
    Delta,
    FileChunk,
    Finish,
    Model,
    ModelRequest,
    ModelResponse,
    OutputSchema,
    PartEndChunk,
    ReasoningChunk,
    Settings,
    SourceChunk,
    TextChunk,
    ToolCallChunk,
    model_name,
)
from hookline._model.prefix import Prefix, PrefixMeter
from hookline._model.prices import (
    PriceFunction,
    Prices,
    Rates,
    genai_prices,
    price_function,
)
from hookline._resolve import MODEL_ENTRY_POINTS, resolve_model
from hookline._tools.tool import ProviderTool

__all__ = [
    "MODEL_ENTRY_POINTS",
    "ChatRequest",
    "Chunk",
    "Delta",
    "FileChunk",
    "Finish",
    "FinishReason",
    "Model",
    "ModelRequest",
    "ModelResponse",
    "OutputSchema",
    "PartEndChunk",
    "Prefix",
    "PrefixMeter",
    "PriceFunction",
    "Prices",
    "ProviderTool",
    "Rates",
    "ReasoningChunk",
    "Settings",
    "SourceChunk",
    "TextChunk",
    "Timing",
    "ToolCallChunk",
    "genai_prices",
    "model_name",
    "price_function",
    "resolve_model",
]
