"""The three protocols: what a request means, and how an answer is written."""
