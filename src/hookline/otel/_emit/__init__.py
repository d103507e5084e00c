"""What is written to OpenTelemetry: spans, metrics, log events and their content."""
