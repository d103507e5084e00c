"""Checks of text: redaction, and guardrails for inputs and answers."""
