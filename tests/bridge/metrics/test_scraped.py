"""Scrapes: those that come together are one, and soon after each other get the same text."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.bridge.metrics.scraped import Scraped


class Maker:
    """Makes page after page, each once it may."""

    def __init__(self) -> None:
        self.made = 0
        self.begun, self.may = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> bytes:
        self.made += 1
        self.begun.set()
        await self.may.wait()
        return b"page %d" % self.made


async def test_two_scrapes_at_once_are_one() -> None:
    scraped, make = Scraped(kept_s=0.0), Maker()
    both = [asyncio.create_task(scraped.page(make)) for _ in range(2)]
    gives_up = asyncio.create_task(scraped.page(make))
    await make.begun.wait()
    gives_up.cancel()
    make.may.set()
    assert await asyncio.gather(*both) == [b"page 1", b"page 1"]
    assert make.made == 1


@pytest.mark.parametrize(("kept_s", "second"), [(3_600.0, b"page 1"), (0.0, b"page 2")])
async def test_a_page_is_kept_for_a_while(kept_s: float, second: bytes) -> None:
    scraped, make = Scraped(kept_s), Maker()
    make.may.set()
    assert await scraped.page(make) == b"page 1"
    assert await scraped.page(make) == second


async def test_a_page_that_fails_is_made_again() -> None:
    scraped, make = Scraped(), Maker()

    async def fails() -> bytes:
        raise ValueError("no page")

    with pytest.raises(ValueError, match="no page"):
        await scraped.page(fails)
    make.may.set()
    assert await scraped.page(make) == b"page 1"
