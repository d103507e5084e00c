"""A local server that plays a script in the format of a provider."""
