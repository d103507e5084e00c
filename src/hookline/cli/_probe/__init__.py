"""The second process of `hookline check --probe`, which answers what the first one has asked."""
