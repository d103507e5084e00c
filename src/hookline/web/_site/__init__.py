"""The ASGI application: routes, and how each request is answered."""
