"""What happens around a model call: cached answers, retries and fallbacks."""
