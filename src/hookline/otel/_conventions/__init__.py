"""The names of the conventions that the telemetry follows."""
