"""How a server is reached: its process or its URL, and its login."""
