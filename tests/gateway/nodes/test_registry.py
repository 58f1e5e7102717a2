"""The fleet: which nodes serve a model, fencing, quarantine, callbacks, reports."""

from __future__ import annotations

import asyncio
import functools
import re
from pathlib import Path

import msgspec
import pytest

from controlplane.gateway.nodes.epochs import Epochs
from controlplane.gateway.nodes.host import LinkRefused
from controlplane.gateway.nodes.limits import ASSETS_KEPT_MAX, NODES_MAX
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.measured.breaker import Cause
from controlplane.gateway.ports import NodeIdentity, Orders
from inference.contract.assets import asset_digest
from inference.contract.codec import decode_from_gateway, encode
from inference.contract.drain import Draining
from inference.contract.frames import (
    Ack,
    AssetPart,
    AssetRequest,
    FromGateway,
    ModelOffer,
    Offers,
    Rejected,
    Welcome,
)
from inference.node.assets import ModelAssets
from tests.support.fleet import MODEL, QUICK, VOCAB_SIZE, World, make_hello, make_job, make_model
from tests.support.waiting import until


class Member:
    """A node of the fleet without a socket; it serves the tiny model's assets."""

    def __init__(self, world: World, name: str, folder: Path, **hello: object) -> None:
        self.sent: list[FromGateway] = []
        self.codes: list[int] = []
        self.assets = ModelAssets(folder)
        self.link: NodeLink = world.fleet.connect(
            world.fleet_port.with_orders(NodeIdentity(id=name, name=name, models=None)),
            send=lambda data: self.sent.append(decode_from_gateway(data)),
            close=lambda code, reason: self.codes.append(code),
        )
        offer = ModelOffer(
            name=MODEL, digest=self.assets.digest, context_window=4096, vocab_size=VOCAB_SIZE
        )
        changes: dict[str, object] = {"node": name, "models": [offer]} | hello
        self.link.on_bytes(encode(make_hello(**changes)))

    def give_assets(self) -> None:
        for part in self.assets.parts(self.assets.digest):
            self.link.on_bytes(encode(part))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_model(tmp_path)


async def serving(world: World, model: Path, *names: str) -> list[Member]:
    members = [Member(world, name, model) for name in names]
    members[0].give_assets()
    await until(lambda: len(world.fleet.candidates(MODEL)) == len(names))
    return members


async def test_candidates_follow_nodes_as_they_come_drain_and_go(model: Path) -> None:
    world = World()
    changes: list[int] = []
    world.fleet.on_change.append(lambda: changes.append(len(world.fleet.candidates(MODEL))))
    ada, bob = await serving(world, model, "ada", "bob")
    assert world.fleet.candidates(MODEL) == (ada.link, bob.link)
    assert world.fleet.candidates("another") == ()
    bob.link.on_bytes(encode(Draining(deadline_s=1.0)))
    bob.link.on_bytes(encode(Draining(deadline_s=1.0)))
    assert world.fleet.candidates(MODEL) == (ada.link,)
    ada.link.on_close()
    assert MODEL not in world.fleet.models()
    assert changes == [0, 0, 2, 1, 0]
    assert list(world.fleet.nodes()) == ["bob"]
    await world.fleet.close()


async def test_a_node_may_offer_anew_what_it_serves(model: Path) -> None:
    world = World()
    ada, bob = await serving(world, model, "ada", "bob")
    other = ModelOffer(name="other", digest="", context_window=512, vocab_size=0)
    ada.link.on_bytes(encode(Offers(models=[other], capabilities=["text", "vision"])))
    assert world.fleet.candidates(MODEL) == (bob.link,)
    assert world.fleet.candidates("other") == (ada.link,)
    assert ada.link.abilities == {"text", "vision"}
    ada.link.on_bytes(encode(Offers(models=[], capabilities=[])))
    assert world.fleet.candidates("other") == (ada.link,)
    await world.fleet.close()


async def test_the_welcome_comes_before_anything_else_is_asked_of_a_node(model: Path) -> None:
    world = World()
    for said in ({}, {}, {"epoch": "epoch-2"}):
        ada = Member(world, "ada", model, **said)
        assert isinstance(ada.sent[0], Welcome)
        assert AssetRequest(digest=ada.assets.digest) in ada.sent
        # What a breaker notes as its node joins is news for everybody.
        ada.link.breaker.eject(Cause.FAILURES)
        ada.link.on_close()
    await world.fleet.close()


@pytest.mark.parametrize(
    ("capabilities", "apart"),
    [
        ([], True),
        (["prefix_cache"], False),
        (["prefix_cache", "salt"], True),
        (["salt", "of a later version"], True),
    ],
)
async def test_a_pool_with_separate_caches_gives_no_job_to_a_node_whose_tenants_share_one(
    model: Path, capabilities: list[str], apart: bool
) -> None:
    world = World()
    (bob,) = await serving(world, model, "bob")
    ada = Member(world, "ada", model, capabilities=capabilities)
    assert ada.link.separates_tenants is apart
    assert world.fleet.candidates(MODEL) == (bob.link, ada.link)
    under_way = world.fleet.dispatch(ada.link, make_job())
    world.fleet_port.said["ada"] = Orders(separate_caches=True)
    await world.fleet._follow_orders(world.fleet_port)
    assert world.fleet.candidates(MODEL) == (bob.link, ada.link)[: 1 + apart]
    assert not under_way.ended and not ada.codes
    # Also to one that comes, or waits for approval, meanwhile.
    ada.link.on_close()
    world.fleet_port.said["ada"] = Orders(separate_caches=True, standing="pending")
    again = Member(world, "ada", model, capabilities=capabilities)
    world.fleet_port.said["ada"] = Orders(separate_caches=True)
    await world.fleet._follow_orders(world.fleet_port)
    assert again.link.takes_jobs is apart
    del world.fleet_port.said["ada"]
    await world.fleet._follow_orders(world.fleet_port)
    assert world.fleet.candidates(MODEL) == (bob.link, again.link)
    await world.fleet.close()


@pytest.mark.parametrize("bad", [["x"] * 65, [""], ["\x00"], ["x" * 101]])
async def test_capabilities_are_a_few_names(model: Path, bad: list[str]) -> None:
    world = World()
    assert Member(world, "ada", model, capabilities=bad).codes == [1008]
    assert Member(world, "ada", model, capabilities=["x" * 100] * 64).codes == []
    await world.fleet.close()


async def test_a_node_with_another_tokenizer_does_not_push_in(
    model: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    world = World()
    ada, bob = await serving(world, model, "ada", "bob")
    other = make_model(tmp_path_factory.mktemp("other"))
    (other / "tokenizer_config.json").write_text('{"chat_template": "{{ evil }}"}')
    rogue = Member(world, "rogue", other)
    rogue.give_assets()
    await until(lambda: world.fleet.assets.get(rogue.assets.digest))
    assert world.fleet.candidates(MODEL) == (ada.link, bob.link)
    ada.link.on_close()
    bob.link.on_close()
    assert world.fleet.candidates(MODEL) == (rogue.link,)
    await world.fleet.close()


async def test_wrong_assets_of_one_node_do_not_keep_a_model_from_being_served(model: Path) -> None:
    world = World()
    rogue = Member(world, "rogue", model)
    ada = Member(world, "ada", model)
    assert not any(isinstance(frame, AssetRequest) for frame in ada.sent)
    wrong = AssetPart(digest=ada.assets.digest, name="tokenizer.json", data=b"{}", last=True)
    rogue.link.on_bytes(encode(wrong))
    assert rogue.codes == [1002]
    assert ("rogue", "quarantined") in world.fleet_port.seen
    assert ada.sent[-1] == AssetRequest(digest=ada.assets.digest)
    ada.give_assets()
    await until(lambda: world.fleet.candidates(MODEL) == (ada.link,))
    await world.fleet.close()


async def test_assets_that_cannot_be_parsed_are_not_asked_again(tmp_path: Path) -> None:
    model = make_model(tmp_path)
    (model / "tokenizer.json").write_text("{}")
    world = World()
    ada = Member(world, "ada", model)
    ada.give_assets()
    await world.fleet.assets.close()
    asked = len(ada.sent)
    Member(world, "bob", model)
    assert world.fleet.models() == {}
    assert len(ada.sent) == asked
    await world.fleet.close()


async def give(member: Member, files: dict[str, bytes]) -> None:
    """Files that no node of ours would offer, asked for by their digest and parsed."""
    digest, store = asset_digest(files), member.link._host.assets  # type: ignore[attr-defined]
    store.want(digest, member.link, model=MODEL)
    for name, data in files.items():
        last = name == list(files)[-1]
        part = AssetPart(digest=digest, name=name, data=data, last=last)
        assert store.on_part(member.link, part) is None
    await store.close()


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (b"{% nonsense %}" + b"x" * 9999, "cannot be served.*TemplateFailed: chat_template: "),
        (b"{{ 'x' * 100000000 }}", "cannot render a greeting.*over"),
        (b"{{ raise_exception('no\nsystem' ~ 'x' * 9999) }}", "cannot render a greeting.*no"),
    ],
)
async def test_what_is_wrong_with_a_template_is_logged(
    model: Path, caplog: pytest.LogCaptureFixture, template: bytes, said: str
) -> None:
    world = World()
    ada = Member(world, "ada", model)
    names = ("tokenizer.json", "tokenizer_config.json")
    files = {name: (model / name).read_bytes() for name in names}
    await give(ada, {"chat_template.jinja": template, **files})
    (line,) = [each.getMessage() for each in caplog.records if each.levelname != "INFO"]
    assert re.search(f"model {MODEL} {said}", line) and len(line) < 500
    await world.fleet.close()


async def test_kept_assets_are_bounded(model: Path) -> None:
    world = World()
    ada = Member(world, "ada", model)
    store = world.fleet.assets
    store.source_lost(ada.link)
    files = {name: (model / name).read_bytes() for name in ("tokenizer.json",)}
    for number in range(ASSETS_KEPT_MAX + 3):
        files["tokenizer_config.json"] = f'{{"number": {number}}}'.encode()
        digest = asset_digest(files)
        await give(ada, files)
    assert len(store._kept) == ASSETS_KEPT_MAX
    assert store.get(digest) is not None
    await world.fleet.close()


async def test_a_freed_credit_is_told(model: Path) -> None:
    world = World()
    (ada,) = await serving(world, model, "ada")
    freed: list[tuple[NodeLink, int]] = []
    world.fleet.on_credit.append(lambda link: freed.append((link, link.account.credits_left)))
    job = make_job()
    world.fleet.dispatch(ada.link, job, cached_tokens=3)
    assert ada.link.account.queued_tokens == 1
    ada.link.on_bytes(encode(Rejected(request=job.request, code="full", message="")))
    assert freed == [(ada.link, 8)]
    await world.fleet.close()


async def test_acknowledgements_travel_together(model: Path) -> None:
    world = World()
    (ada,) = await serving(world, model, "ada")
    jobs = [make_job() for _ in range(3)]
    for job in jobs:
        world.fleet.dispatch(ada.link, job)
        world.fleet.acknowledge(ada.link, job.request)
    await until(lambda: isinstance(ada.sent[-1], Ack))
    assert ada.sent[-1] == Ack(requests=[job.request for job in jobs])
    await world.fleet.close()


async def test_a_node_may_only_serve_what_its_credential_allows(model: Path) -> None:
    world = World()
    codes: list[int] = []
    link = world.fleet.connect(
        NodeIdentity(id="ada", name="ada", models=frozenset({"another"})),
        send=lambda data: None,
        close=lambda code, reason: codes.append(code),
    )
    link.on_bytes(encode(make_hello(node="ada")))
    assert codes == [4403]
    assert world.fleet.nodes() == {}
    await world.fleet.close()


async def test_a_node_may_only_serve_in_the_pool_that_it_is_registered_in() -> None:
    world = World()
    codes: list[int] = []
    for pool in ("silver", "gold"):
        link = world.fleet.connect(
            NodeIdentity(id="ada", name="ada", models=None, pool="gold"),
            send=lambda data: None,
            close=lambda code, reason: codes.append(code),
        )
        link.on_bytes(encode(make_hello(node="ada", pool=pool)))
    assert codes == [4403]
    assert world.fleet.nodes()["ada"].hello.pool == "gold"
    await world.fleet.close()


async def test_a_credential_that_lapses_cuts_its_link_and_no_other(model: Path) -> None:
    world = World()
    ada, bob = await serving(world, model, "ada", "bob")
    world.fleet_port.away = True
    world.fleet_port.revoked.add("ada")
    await asyncio.sleep(3 * QUICK.tick_s)
    assert ada.codes == [], "who cannot be asked has revoked nobody"
    world.fleet_port.away = False
    await until(lambda: ada.codes == [4401])
    assert world.fleet.candidates(MODEL) == (bob.link,)
    await world.fleet.close()


async def test_quarantine_ends_after_its_time(model: Path) -> None:
    world = World()
    world.fleet.limits = msgspec.structs.replace(world.fleet.limits, quarantine_s=0.5)
    ada = Member(world, "ada", model)
    ada.link.on_bytes(b"\xc1")
    assert ("ada", "quarantined") in world.fleet_port.seen
    with pytest.raises(LinkRefused):
        Member(world, "ada", model)
    await asyncio.sleep(0.51)
    Member(world, "ada", model)
    await world.fleet.close()


async def test_nodes_are_bounded(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.gateway.nodes.registry.NODES_MAX", 1)
    world = World()
    Member(world, "ada", model)
    with pytest.raises(LinkRefused) as refused:
        Member(world, "bob", model)
    assert refused.value.code == 4429
    await world.fleet.close()
    assert NODES_MAX > 1


def test_a_fenced_epoch_never_comes_back() -> None:
    epochs = Epochs()
    assert epochs.take("ada", "1")
    assert epochs.take("ada", "1")
    assert epochs.take("ada", "2")
    assert not epochs.take("ada", "1")
    assert epochs.take("bob", "1")


async def test_assets_are_asked_once_and_from_another_node_when_the_first_leaves() -> None:
    world = World()
    asked: list[str] = []
    links = []

    def hear(name: str, data: bytes) -> None:
        if isinstance(decode_from_gateway(data), AssetRequest):
            asked.append(name)

    for name in ("node-1", "node-2"):
        identity = msgspec.structs.replace(
            world.fleet_port.identities["node_sluice_test"], id=name, name=name
        )
        link = world.fleet.connect(
            identity,
            send=functools.partial(hear, name),
            close=lambda code, reason: None,
        )
        link.on_bytes(encode(make_hello(node=name)))
        links.append(link)
    assert asked == ["node-1"]
    links[0].on_close()
    assert asked == ["node-1", "node-2"]
    await world.fleet.close()
