"""ASGI middleware: what happens to every request before and after its route."""
