"""The HTTP interface: FastAPI application, routes, wire models, error mapping."""
