"""Guards: calls that are refused, limited or asked about before they run."""
