"""The protocol of the Vercel AI SDK: its stream, its messages and its requests."""
