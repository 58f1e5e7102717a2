"""Digests of text assets: what staff have not approved is neither fetched nor served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from controlplane.gateway.nodes.drafts import DraftedTokens
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.models import Approval
from controlplane.gateway.ports import NodeIdentity, Orders
from inference.contract.codec import decode_from_gateway, encode
from inference.contract.frames import AssetRequest, FromGateway, ModelOffer
from inference.node.assets import ModelAssets
from tests.support.fleet import MODEL, VOCAB_SIZE, World, make_hello, make_model, make_step
from tests.support.waiting import until

Standing = Literal["pending", "active", "draining"]


class Offering:
    """A node without a socket that offers one model."""

    def __init__(
        self, world: World, name: str, offer: ModelOffer, standing: Standing = "active"
    ) -> None:
        self.sent: list[FromGateway] = []
        self.link: NodeLink = world.fleet.connect(
            NodeIdentity(id=name, name=name, models=None, orders=Orders(standing=standing)),
            send=lambda data: self.sent.append(decode_from_gateway(data)),
            close=lambda code, reason: None,
        )
        self.link.on_bytes(encode(make_hello(node=name, models=[offer])))


def asked(node: Offering) -> bool:
    """Its tokenizer was asked for."""
    return any(isinstance(frame, AssetRequest) for frame in node.sent)


def offer_of(assets: ModelAssets) -> ModelOffer:
    return ModelOffer(name=MODEL, digest=assets.digest, context_window=64, vocab_size=VOCAB_SIZE)


def foreign_model(folder: Path) -> Path:
    """The tiny model with another chat template."""
    path = make_model(folder)
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ evil }}"}))
    return path


async def test_a_foreign_digest_is_not_even_fetched(tmp_path: Path) -> None:
    good = ModelAssets(make_model(tmp_path))
    (tmp_path / "foreign").mkdir()
    foreign = ModelAssets(foreign_model(tmp_path / "foreign"))
    world = World()
    world.fleet.approve({MODEL: Approval(digests=frozenset({good.digest}))})
    # The first to come would otherwise set the model's offer and push the others out.
    rogue = Offering(world, "rogue", offer_of(foreign))
    text = Offering(world, "text", ModelOffer(
        name=MODEL, digest="", context_window=64, vocab_size=0))  # fmt: skip
    ada = Offering(world, "ada", offer_of(good))
    assert asked(ada) and not asked(rogue)
    for part in good.parts(good.digest):
        ada.link.on_bytes(encode(part))
    await until(lambda: world.fleet.candidates(MODEL) == (ada.link,))
    assert rogue.link.takes_jobs and text.link.takes_jobs
    world.fleet.approve({MODEL: Approval(digests=frozenset({foreign.digest}))})
    assert asked(rogue)
    assert world.fleet.candidates(MODEL) == ()
    await world.fleet.close()


async def test_a_model_that_is_not_configured_is_not_fetched(tmp_path: Path) -> None:
    assets = ModelAssets(make_model(tmp_path))
    world = World()
    world.fleet.approve({"another": Approval()})
    ada = Offering(world, "ada", offer_of(assets))
    assert not asked(ada)
    world.fleet.approve({MODEL: Approval()})
    assert asked(ada)
    await world.fleet.close()


@pytest.mark.parametrize("lie", [
    {"vocab_size": VOCAB_SIZE + 1}, {"vocab_size": VOCAB_SIZE - 1}, {"context_window": 48},
    {"context_window": 96}, {"dimensions": [8]},
])  # fmt: skip
async def test_the_first_node_does_not_say_what_a_model_is(
    tmp_path: Path, lie: dict[str, object]
) -> None:
    assets = ModelAssets(make_model(tmp_path))
    offer = offer_of(assets)
    world = World()
    world.fleet.approve({MODEL: Approval(digests=frozenset({assets.digest}))})
    rogue = Offering(world, "rogue", msgspec.structs.replace(offer, **lie))
    for part in assets.parts(assets.digest):
        rogue.link.on_bytes(encode(part))
    await until(lambda: world.fleet.candidates(MODEL) == (rogue.link,))
    honest = [Offering(world, name, offer).link for name in ("ada", "bob")]
    assert world.fleet.candidates(MODEL) == tuple(honest)
    served = world.fleet.models()[MODEL]
    assert (served.context_window, served.vocab_size, served.dimensions) == (64, VOCAB_SIZE, ())
    await world.fleet.close()


@pytest.mark.parametrize("windows", [(32, 64), (96, 64), (64, 96), (64, 32)])
async def test_the_configured_window_decides_between_two_nodes(
    tmp_path: Path, windows: tuple[int, int]
) -> None:
    assets = ModelAssets(make_model(tmp_path))
    world = World()
    world.fleet.approve({
        MODEL: Approval(digests=frozenset({assets.digest}), context_window=64)
    })  # fmt: skip
    links = {}
    for window in windows:
        offer = msgspec.structs.replace(offer_of(assets), context_window=window)
        links[window] = Offering(world, f"node-{window}", offer).link
    for part in assets.parts(assets.digest):
        links[windows[0]].on_bytes(encode(part))
    # More than requests may use is no difference; less than that is.
    able = tuple(links[window] for window in windows if window >= 64)
    await until(lambda: world.fleet.candidates(MODEL) == able)
    assert world.fleet.models()[MODEL].context_window == 64
    await world.fleet.close()


async def test_only_nodes_that_staff_let_in_count_for_the_installation(tmp_path: Path) -> None:
    offer = offer_of(ModelAssets(make_model(tmp_path)))
    world = World()
    world.fleet.approve({MODEL: Approval(digests=frozenset({offer.digest}))})
    held = Offering(world, "held", msgspec.structs.replace(offer, digest="f" * 64))
    pending = Offering(world, "pending", offer, "pending")
    good = Offering(world, "good", offer)
    for node, count in ((held, 5), (pending, 7), (good, 1)):
        node.link.on_bytes(encode(msgspec.structs.replace(make_step(), preemptions=count)))
    assert world.fleet.approved_nodes() == [good.link]
    assert world.fleet.drafts.take() == [DraftedTokens(MODEL, 0, 0, 1)]
    await world.fleet.close()
