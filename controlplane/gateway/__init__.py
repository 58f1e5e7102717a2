"""The hot path: plain asyncio under ASGI. Imports the kernel and `inference`, never Django."""
