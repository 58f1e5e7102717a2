"""The gateway's end of the fleet link: nodes, their jobs, their prefix caches and assets.

Plain asyncio; knows neither Django nor sockets. `bridge/fleet/socket.py` feeds it bytes.
"""
