"""hookline's own protocol: its stream and its messages."""
