"""The gateways that a node dials: those it was started with, always, and those that they list
which take nodes of its pool.

Every link receives the list of all live gateways. It is evaluated here; the links do the dialling.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from urllib.parse import urlsplit

from inference.contract.places import GatewayAddress
from inference.node.link import GatewayLink
from inference.node.options import GATEWAYS_MAX, GONE_S, UNLISTED_S, BadOption, gateway_url

log = logging.getLogger(__name__)


class GatewayLinks:
    """All links of a node by URL. `dial` makes one, `drop` ends it."""

    def __init__(
        self,
        seeds: Sequence[str],
        *,
        pool: str,
        dial: Callable[[str], GatewayLink],
        drop: Callable[[GatewayLink], None],
    ) -> None:
        self._pool = pool
        self._dial = dial
        self._drop = drop
        self._seeds = frozenset(seeds)
        # A credential that is sent only over TLS must not be sent over plain text.
        self._tls_only = all(urlsplit(url).scheme == "wss" for url in seeds)
        self._lists: dict[str, tuple[GatewayAddress, ...]] = {}
        self._unlisted_s: dict[str, float] = {}
        self._absent_s: dict[str, float] = {}
        self.by_url: dict[str, GatewayLink] = {url: dial(url) for url in seeds}

    def __iter__(self) -> Iterator[GatewayLink]:
        return iter(self.by_url.values())

    def __len__(self) -> int:
        """How many lead to gateways that take this node, as far as is known."""
        return sum(not link.elsewhere for link in self.by_url.values())

    def send_all(self, data: bytes) -> None:
        """Send an encoded frame over every link."""
        for link in self.by_url.values():
            link.send_bytes(data)

    def connected(self) -> list[GatewayLink]:
        return [link for link in self.by_url.values() if link.connected]

    def listed(self, link: GatewayLink, gateways: Iterable[GatewayAddress]) -> None:
        """A gateway has listed the live ones: dial those that are new."""
        known = self._lists[link.url] = tuple(gateways)
        for address in known:
            url = self._usable(address.url)
            if url is None or url in self.by_url or not address.takes(self._pool):
                continue
            if len(self.by_url) >= GATEWAYS_MAX:
                log.warning("gateway not dialled url=%s: there are %d already", url, GATEWAYS_MAX)
                return
            self.by_url[url] = self._dial(url)

    def stands_alone(self, link: GatewayLink) -> bool:
        """Whether the process behind this link names the dialled address as its own.

        So no other process can be behind it at the same time.
        """
        return any(
            each.instance == link.gateway and self._usable(each.url) == link.url
            for each in self._lists.get(link.url, ())
        )

    def look(self, now_s: float) -> None:
        """Drop links whose gateway has not been listed for a while."""
        lists = self._current()
        if not lists:
            self._unlisted_s.clear()
            return
        urls = {self._usable(each.url) for gateways in lists for each in gateways}
        for url, link in list(self.by_url.items()):
            if url in self._seeds or url in urls:
                self._unlisted_s.pop(url, None)
            elif now_s - self._unlisted_s.setdefault(url, now_s) >= UNLISTED_S:
                log.info("gateway left the list url=%s", url)
                del self._unlisted_s[url], self.by_url[url]
                self._lists.pop(url, None)
                self._drop(link)

    def gone(self, gateways: Iterable[str], now_s: float) -> list[str]:
        """Those of these instances that are dead: not connected, and on no list for a while."""
        lists = self._current()
        here = {link.gateway for link in self.connected()}
        here |= {each.instance for addresses in lists for each in addresses}
        absent = {name for name in gateways if lists and name not in here}
        self._absent_s = {name: self._absent_s.get(name, now_s) for name in absent}
        return [name for name, since_s in self._absent_s.items() if now_s - since_s >= GONE_S]

    def _current(self) -> list[tuple[GatewayAddress, ...]]:
        """The lists that are kept up to date; a gateway without one lists itself at least."""
        return [self._lists[link.url] for link in self.connected() if self._lists.get(link.url)]

    def _usable(self, url: str) -> str | None:
        try:
            checked = gateway_url(url)
        except BadOption:
            return None
        return None if self._tls_only and urlsplit(checked).scheme != "wss" else checked
