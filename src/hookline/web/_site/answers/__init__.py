"""How a request is answered: now, later, or from another process, as a stream."""
