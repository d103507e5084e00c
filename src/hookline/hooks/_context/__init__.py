"""Short requests: what of a history is sent to the model."""
