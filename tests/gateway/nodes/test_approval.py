"""Digests of text assets: what staff have not approved is neither fetched nor served."""

from __future__ import annotations

import json
from pathlib import Path

from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.ports import NodeIdentity
from inference.contract.codec import decode_from_gateway, encode
from inference.contract.frames import AssetRequest, FromGateway, ModelOffer
from inference.node.assets import ModelAssets
from tests.support.fleet import MODEL, VOCAB_SIZE, World, make_hello, make_model, until


class Offering:
    """A node without a socket that offers one model."""

    def __init__(self, world: World, name: str, offer: ModelOffer) -> None:
        self.sent: list[FromGateway] = []
        self.link: NodeLink = world.fleet.connect(
            NodeIdentity(id=name, name=name, models=None),
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
    world.fleet.approve({MODEL: frozenset({good.digest})})
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
    world.fleet.approve({MODEL: frozenset({foreign.digest})})
    assert asked(rogue)
    assert world.fleet.candidates(MODEL) == ()
    await world.fleet.close()


async def test_a_model_that_is_not_configured_is_not_fetched(tmp_path: Path) -> None:
    assets = ModelAssets(make_model(tmp_path))
    world = World()
    world.fleet.approve({"another": None})
    ada = Offering(world, "ada", offer_of(assets))
    assert not asked(ada)
    world.fleet.approve({MODEL: None})
    assert asked(ada)
    await world.fleet.close()
