"""Errors of services and SDKs, as hookline's own."""
