"""Connections of clients: uvicorn's HTTP protocol with bounds."""
