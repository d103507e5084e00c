"""The client: a server of somebody else, as tools of an agent."""
