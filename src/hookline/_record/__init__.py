"""The seam to the outside world, and the durable record of what went through it."""
