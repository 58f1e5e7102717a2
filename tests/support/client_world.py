"""The whole product for clients of others: one gateway process, and nodes with real models.

`sluice-5m` is the shipped model, `sluice-5m-long` the same weights told of a window that coding
agents need, and `all-minilm-l6-v2` the packaged encoder. Each session has a key of its own, by
which its records are found, and a tap that keeps what it asked for.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from controlplane.catalog.prompts import PromptVersions, prompt_create
from controlplane.catalog.services import model_create, price_publish
from controlplane.composed.demo import (
    ADMIN_EMAIL,
    EMBED_MODEL,
    EMBED_NODE_NAME,
    MODEL,
    NODE_NAME,
    PRICE,
    demo_ensure,
)
from controlplane.core.audit.entries import OPERATOR
from controlplane.embedded import stack, supervisor
from controlplane.fleet.services import node_credential_create
from controlplane.quotas.services import rate_limit_set
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.models import Project
from controlplane.tenants.selectors import project_list
from controlplane.tenants.sign_in.accounts import user_find
from tests.support.loopback import HOST
from tests.support.money import rows
from tests.support.product import LIMITS, Child, Plan, Product, running_product
from tests.support.servers import Servers
from tests.support.shipped import SHIPPED
from tests.support.tap import Tap, tapped
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "tests" / "clients"
DRIVERS = CLIENTS / "drivers"
NODE = CLIENTS / "node"
AGENTS = CLIENTS / "agents"
# Where the exchanges of a session that failed are kept.
FAILED = ROOT / "var" / "clients"
LONG_WINDOW = 65_536
LONG_MODEL = replace(
    MODEL, name="sluice-5m-long", context_window=LONG_WINDOW, output_tokens_max=256
)
LONG_NODE = "node-long"
# Several processes compute on few cores.
THREADS = ("--threads", "1")
# For a machine on which much else runs.
SESSION_S_MAX = 480.0
TAIL_CHARS = 4_000
# What asks the gateway for tokens, and so leaves a record.
PAID = ("/chat/completions", "/completions", "/embeddings", "/responses", "/messages")
# A client that looks for news, models or templates elsewhere would wait for the network.
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "NO_PROXY": "*",
    "PYTHONWARNINGS": "ignore",
}


@dataclass(frozen=True)
class World:
    """The running product."""

    product: Product
    project: Project

    @contextlib.contextmanager
    def session(self, name: str, folder: Path) -> Iterator[Session]:
        """A key and a tap for one client; `folder` is its home."""
        created = apikey_create(actor=OPERATOR, project=self.project, label=name)
        rate_limit_set(actor=OPERATOR, subject=created.key, **LIMITS)
        with tapped(self.product.urls[0]) as tap:
            yield Session(name, folder, created.secret, str(created.key.id), tap)


@dataclass(frozen=True)
class Session:
    """One client's; `finished` judges it by what the gateway and the tap saw, never by words."""

    name: str
    folder: Path
    secret: str
    key_id: str
    tap: Tap

    def run(
        self, argv: Sequence[str], bins: Sequence[Path] = (), **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the client in its home until it ends, or the time is over.

        Programs of `bins` are found first; `more` are variables of its environment.
        """
        environment = {
            "PATH": os.pathsep.join([*map(str, bins), os.environ["PATH"]]),
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "SLUICE": self.tap.url,
            "KEY": self.secret,
            "MODEL": MODEL.name,
            "LONG_MODEL": LONG_MODEL.name,
            "EMBEDDER": EMBED_MODEL.name,
            "TOKENIZER": str(SHIPPED),
            **OFFLINE,
            **more,
        }
        with subprocess.Popen(
            argv, env=environment, cwd=self.folder, text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                out, errors = process.communicate(timeout=SESSION_S_MAX)
            finally:
                # With whatever it has started.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(argv, process.returncode, out, errors)

    def finished(
        self, ran: subprocess.CompletedProcess[str], *, acts: bool, refused: Sequence[int] = ()
    ) -> None:
        """The client ended well, only these statuses were refusals, and each answer was counted.

        With `acts` its last line is a driver's report.
        """
        with self._kept():
            self._ended_well(ran, acts)
            odd = [each for each in self.tap.refused() if each.status not in refused]
            assert not odd, [(each.path, each.status, each.answer) for each in odd]
            self._counted()

    def refused_only(self, ran: subprocess.CompletedProcess[str], *statuses: int) -> None:
        """A driver's every act was refused as it should be, by each of these statuses."""
        with self._kept():
            self._ended_well(ran, acts=True)
            assert {each.status for each in self.tap.exchanges} == set(statuses)

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        """Keep what went through where the block fails, for whoever mends it."""
        try:
            yield
        except BaseException:
            self.tap.keep(FAILED / f"{self.name}.json")
            raise

    def _ended_well(self, ran: subprocess.CompletedProcess[str], acts: bool) -> None:
        tail = f"{ran.stdout[-TAIL_CHARS:]}\n{ran.stderr[-TAIL_CHARS:]}"
        assert ran.returncode == 0, f"exit {ran.returncode}\n{tail}"
        if acts:
            done = json.loads(ran.stdout.strip().splitlines()[-1])
            faults = {name: fault for name, fault in done.items() if fault}
            assert done and not faults, json.dumps(faults, indent=1)

    def _counted(self) -> None:
        """As many records as answers, each with its tokens and, where it made any, a charge."""
        answered = [
            each.path.partition("?")[0].rsplit("/v1", 1)[-1]
            for each in self.tap.exchanges
            if each.method == "POST" and each.status == 200
        ]
        wanted = sum(path in PAID for path in answered)
        assert wanted, "no request was answered"

        def told() -> list[tuple[int, int, int, str]]:
            return rows(
                "SELECT prompt_tokens, output_tokens, cost_nano, operation FROM request_records"
                " WHERE key = %s AND status = 200",
                self.key_id,
            )

        wait_for(lambda: len(told()) >= wanted, f"{wanted} records")
        assert len(told()) == wanted
        for prompt, output, cost, operation in told():
            assert prompt > 0 and cost > 0 and (output > 0 or operation == "embedding"), operation


@contextlib.contextmanager
def client_world(servers: Servers, folder: Path, *, long: bool = False) -> Iterator[World]:
    """Start it in a fresh database, with `long` also the model with the long window, which is made
    in `folder`.
    """
    with running_product(servers, Plan(nodes=0, started=False)) as product:
        made = demo_ensure(new_node_credential=True, embed=True, new_embed_credential=True)
        assert made.node_credential and made.embed_credential
        nodes = [
            stack.node(
                HOST, product.ports, model=SHIPPED, name=NODE_NAME, credential=made.node_credential
            ),
            stack.embed_node(
                HOST, product.ports, name=EMBED_NODE_NAME, credential=made.embed_credential
            ),
        ]
        if long:
            nodes.append(_long_node(product.ports, folder))
        # One after the other, since all of them import torch.
        for number, child in enumerate(nodes):
            log = folder / f"{child.name}-{number}.log"
            product.nodes.append(Child(child.name, [*child.argv, *THREADS], child.env, log))
            product.mend()
        admin = user_find(email=ADMIN_EMAIL)
        assert admin is not None
        project = project_list(user=admin)[0]
        _stored_tool(project)
        yield World(product, project)


def _stored_tool(project: Project) -> None:
    """What requests of the clients may name."""
    name, organization = "weather", project.organization_id
    made = prompt_create(actor=OPERATOR, organization_id=organization, name=name)
    city = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}}
    parameters = {**city, "required": ["city"], "additionalProperties": False}
    versions = PromptVersions(OPERATOR, made)
    tool = {"description": "The weather in a city.", "parameters": parameters, "strict": True}
    versions.publish(versions.draft_create({"tool": tool}))


def _long_node(ports: Sequence[int], folder: Path) -> supervisor.Child:
    """A node with the long window, and what the catalog has to know of it."""
    model = model_create(actor=OPERATOR, draft=LONG_MODEL)
    price_publish(actor=OPERATOR, model=model, draft=PRICE)
    credential = node_credential_create(
        actor=OPERATOR, name=LONG_NODE, pool=LONG_MODEL.pool, models=[LONG_MODEL.name]
    )
    weights = make_long(folder / LONG_MODEL.name)
    return stack.node(HOST, ports, model=weights, name=LONG_NODE, credential=credential.secret)


def make_long(folder: Path) -> Path:
    """The shipped model with a window that its weights were never trained for."""
    folder.mkdir()
    for each in SHIPPED.iterdir():
        (folder / each.name).symlink_to(each)
    path = folder / "config.json"
    told = {**json.loads(path.read_text()), "max_position_embeddings": LONG_WINDOW}
    path.unlink()
    path.write_text(json.dumps(told))
    return folder


def driver(name: str, python: str | Path = sys.executable) -> list[str]:
    """The command of a Python driver, in an environment's interpreter."""
    return [str(python), str(DRIVERS / f"{name}.py")]


def bin_of(environment: str) -> Path:
    """Where the programs of one of the clients' environments are."""
    path = ROOT / environment / "bin"
    assert path.exists(), f"{path} is missing: run `make test-clients`"
    return path


def lent_torch(folder: Path) -> Path:
    """A folder for the path of Python with nothing but the torch that is here: as large as all
    clients together, it is installed once.
    """
    folder.mkdir()
    for name in ("torch", "torchgen", "functorch"):
        (folder / name).symlink_to(Path(torch.__file__).parents[1] / name)
    (told,) = Path(torch.__file__).parents[1].glob("torch-*.dist-info")
    (folder / told.name).symlink_to(told)
    return folder
