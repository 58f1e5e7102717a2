"""Choosing the ports and asking a started gateway whether it serves."""

import http.client
import json
import socket

from controlplane.embedded.processes import ServerError

PORT_DEFAULT = 8000
PORTS_TRIED_MAX = 20
ASK_SECONDS_MAX = 2.0
CHOICE = "--port, or `make run PORT=9000`"


def choose_ports(host: str, wanted: int | None, count: int) -> list[int]:
    """So many ports in a row, from the wanted one on or an error.

    Without a wish, the first such free ones from the default on.
    """
    if wanted is not None:
        for port in range(wanted, wanted + count):
            if not is_free(host, port):
                raise ServerError(f"Port {port} is in use. Choose another with {CHOICE}.")
        return list(range(wanted, wanted + count))
    for first in range(PORT_DEFAULT, PORT_DEFAULT + PORTS_TRIED_MAX):
        ports = list(range(first, first + count))
        if all(is_free(host, port) for port in ports):
            return ports
    last = PORT_DEFAULT + PORTS_TRIED_MAX - 1
    many = "are all in use" if count == 1 else f"have no {count} free ones in a row"
    raise ServerError(f"Ports {PORT_DEFAULT} to {last} {many}. Choose one with {CHOICE}.")


def is_free(host: str, port: int) -> bool:
    """Whether we could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections of an earlier start may linger for a minute.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def serves(host: str, port: int, *, models_min: int) -> bool:
    """Whether the gateway is ready and can serve at least so many models, tokenizers included."""
    connection = http.client.HTTPConnection(host, port, timeout=ASK_SECONDS_MAX)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        facts = json.loads(response.read())
        return response.status == 200 and len(facts.get("models", ())) >= models_min
    except (OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()
