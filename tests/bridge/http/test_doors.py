"""Connections are counted where they were made."""

from controlplane.bridge.http.doors import Doors

PROXY, CLIENT = "2001:db8::1", "2001:db8::2"


def test_a_proxy_in_a_network_of_clients_is_counted_apart() -> None:
    doors = Doors()
    doors.trusted, doors.per_address_max = (f"{PROXY}/128",), 1
    proxy = doors.enter(PROXY, 0)
    for _ in range(2):
        client = doors.enter(CLIENT, 0)
        assert proxy is not None and client is not None
        doors.leave(client)
    assert doors.open == doors.proxies.total() == 1
