"""What all adapters share: clients, errors, streams, and parts of requests."""
