"""AG-UI: its stream, its messages, and the state that a front end shares."""
