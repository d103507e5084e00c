"""Google's Gemini, through the SDK `google-genai` (extra `google`)."""

from hookline.providers.google._model import GoogleModel, GoogleSettings

__all__ = ["GoogleModel", "GoogleSettings"]
