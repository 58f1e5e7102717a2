"""The real product as recorded requests find it: tenants, keys, models, rules, prompts and nodes.

One gateway process, one echo node as it is shipped, and a process of scripted nodes. Only the
classifier of abuse is replaced, by one that knows a single word: the real one loads for seconds.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from django.conf import settings
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from controlplane.billing.budgets.models import BudgetScope
from controlplane.billing.budgets.services import budget_set
from controlplane.bridge.safety.process import SafetyServer, take_lock
from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.catalog.prompts import PromptVersions, prompt_create
from controlplane.catalog.services import ModelDraft, PriceDraft, model_create, price_publish
from controlplane.core.audit.entries import OPERATOR
from controlplane.embedded import stack
from controlplane.fleet.services import node_credential_create
from controlplane.kernel.keys.format import new_credential
from controlplane.kernel.rules import PRIORITY_HIGH, PRIORITY_LOW
from controlplane.quotas.services import rate_limit_set
from controlplane.tenants.keys import KeyTerms, apikey_create, apikey_revoke
from controlplane.tenants.models import Organization, Project
from controlplane.tenants.services import project_create, project_update
from tests.recorded.models import (
    ABUSE,
    ACTOR,
    BRITTLE,
    ECHO,
    GHOST,
    GRATIS,
    ORIGIN,
    TEXTER,
    VECTORS,
)
from tests.recorded.nodes import CREDENTIALS
from tests.support.loopback import HOST
from tests.support.money import rows
from tests.support.product import LIMITS, Child, Plan, Product, running_product
from tests.support.rules import publish, rule
from tests.support.servers import Servers
from tests.support.waiting import wait_for

# These have a tokenizer that puts tokens around what it is given, as many have.
MARKED = (BRITTLE, VECTORS)
MARKS = ("<|bos|>", "<|end|>")
# A model, its pool, what its scripted node is, its task, and pico-USD per token, which round.
MODELS = (
    (ACTOR, "acting", "tokens", "generate", (123_457, 12_347, 654_323)),
    (TEXTER, "texting", "text", "generate", (77_777, 7_777, 333_331)),
    (VECTORS, "vectoring", "vectors", "embed", (20_001, 20_001, 0)),
    (GHOST, "ghosts", "", "generate", (1_000, 100, 4_000)),
    (GRATIS, "gifts", "tokens", "generate", (0, 0, 0)),
    # Half a nano-USD is often left over.
    (BRITTLE, "breaking", "tokens", "generate", (2_500, 500, 7_500)),
)
TERMS = {
    "main": KeyTerms(),
    "bare": KeyTerms(),
    "narrow": KeyTerms(models=[ACTOR, VECTORS]),
    "named": KeyTerms(models=["smart"]),
    "reader": KeyTerms(read_only=True),
    "lister": KeyTerms(endpoints=["models", "completions"]),
    "elsewhere": KeyTerms(networks=["10.0.0.0/8"]),
    "near": KeyTerms(networks=["127.0.0.0/8"]),
    "web": KeyTerms(tags=["web"]),
    "low": KeyTerms(priority=PRIORITY_LOW),
    "high": KeyTerms(priority=PRIORITY_HIGH),
    "slow": KeyTerms(),
    "scarce": KeyTerms(),
    "daily": KeyTerms(),
    "single": KeyTerms(),
    "poor": KeyTerms(),
    "broke": KeyTerms(),
    "revoked": KeyTerms(),
    "expired": KeyTerms(),
}
SAFETY = {"blocked": "block", "flagged": "flag"}
LIMITED = {
    "slow": {"requests_per_min": 1},
    "scarce": {"tokens_per_min": 60},
    "daily": {"requests_per_day": 1},
    "single": {"concurrency": 1, **LIMITS},
}
BUDGETS = {"poor": 60_000, "broke": 1}
SUPPORT = {
    "messages": [
        {"role": "system", "content": "You answer from the handbook, in one sentence. " * 6},
        {"role": "user", "content": "{{context}}\n\n{{question}}"},
    ],
    "variables": [
        {"name": "context", "chars_max": 200},
        {"name": "question", "chars_max": 400},
        {"name": "tone", "type": "choice", "choices": ["dry", "warm"], "default": "dry"},
        {"name": "sentences", "type": "integer", "least": 1, "most": 5, "default": 1},
    ],
}
OLDER = {"messages": [{"role": "system", "content": "Older: {{tone}}."}],
         "variables": [{"name": "tone"}]}  # fmt: skip
RULES = (
    rule("smart", ACTOR, match={"aliases": ["smart"], "tasks": ["generate"]}),
    {"name": "second", "match": {"aliases": ["second"], "tasks": ["generate"]},
     "steps": [{"targets": [{"model": GHOST}]}, {"targets": [{"model": ACTOR}]}]},
    {"name": "third", "match": {"aliases": ["third"], "tasks": ["generate"]},
     "steps": [{"targets": [{"model": GHOST}]}, {"targets": [{"model": GHOST}], "queue_s": 0},
               {"targets": [{"model": TEXTER}]}]},
    {"name": "lost", "match": {"aliases": ["lost"], "tasks": ["generate"]},
     "steps": [{"targets": [{"model": GHOST}]}]},
    {"name": "patient", "match": {"aliases": ["patient"], "tasks": ["generate"]},
     "steps": [{"targets": [{"model": ACTOR}]}, {"targets": [{"model": ECHO}]}],
     "deadline_s": 60, "priority": PRIORITY_HIGH},
    {"name": "long", "match": {"aliases": ["sized"], "tasks": ["generate"],
                               "prompt_tokens_min": 150},
     "steps": [{"targets": [{"model": TEXTER}]}]},
    rule("short", ACTOR, match={"aliases": ["sized"], "tasks": ["generate"]}),
    rule("tagged", ACTOR, match={"aliases": [ECHO], "tags": ["web"], "tasks": ["generate"]}),
    rule("wide", ECHO, match={"aliases": ["wide"], "tasks": ["generate"]}, widen=True),
    rule("points", VECTORS, match={"aliases": ["points"], "tasks": ["embed"]}),
)  # fmt: skip


@dataclass
class World:
    """The running product; `keys` are secrets by label, `names` labels by an id's hex digits."""

    product: Product
    socket: Path
    journal: Path
    keys: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    @property
    def port(self) -> int:
        """Of the gateway."""
        return self.product.ports[0]


@contextlib.contextmanager
def running_world(servers: Servers) -> Iterator[World]:
    """All of it, ready, until the block ends."""
    plan = Plan(started=False, gateway_env=lambda _: {"SLUICE_PAGES_ORIGINS": ORIGIN})
    with (
        tempfile.TemporaryDirectory(prefix="sluice-recorded-") as folder,
        knowing_one_word(),
        running_product(servers, plan) as product,
    ):
        made = World(product, Path(folder) / "read.sock", Path(folder) / "jobs.jsonl")
        make_tenants(made)
        credentials = make_models()
        publish(*RULES)
        product.nodes.append(_scripted(made, credentials))
        product.start()
        served = {ECHO, *(model for model, _, mode, *_ in MODELS if mode)}
        wait_for(lambda: set(product.readiness().get("models", ())) == served, "every model")
        yield made


@contextlib.contextmanager
def knowing_one_word() -> Iterator[None]:
    """A classifier in this process, with the lock that keeps the real one from starting."""
    path = settings.DATA_DIR / "safety.sock"
    lock = take_lock(path)
    assert lock is not None, "another classifier serves this folder"
    with lock, SafetyServer(path, _score) as server:
        done = threading.Event()

        def run() -> None:
            server.timeout = 0.2
            while not done.is_set():
                server.handle_request()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
    path.unlink(missing_ok=True)


def _score(texts: Sequence[str]) -> list[float]:
    return [float(ABUSE in text) for text in texts]


def make_tenants(made: World) -> None:
    """Keys in the demo's project, and one project for each mode of the safety layer."""
    ((demo, organization),) = rows("SELECT id, organization_id FROM projects")
    made.names[organization.hex] = "the organization"
    made.names[demo.hex] = "the project"
    ((demo_key,),) = rows("SELECT id FROM api_keys")
    made.names[demo_key.hex] = "key demo"
    made.keys["demo"] = made.product.key
    project = Project(id=demo, organization_id=organization)
    for label, terms in TERMS.items():
        _make_key(made, project, label, terms)
    for label, mode in SAFETY.items():
        kept = project_create(
            actor=OPERATOR, organization=Organization(id=organization), name=label
        )
        project_update(
            actor=OPERATOR, project=kept, safety_mode=mode, allow_content_logging=label == "flagged"
        )
        made.names[kept.id.hex] = f"project {label}"
        _make_key(made, kept, label, KeyTerms())
    rows("UPDATE api_keys SET expires_at = now() - interval '1 day' WHERE label = 'expired'")
    made.keys["unknown"] = new_credential().text
    make_prompts(organization, project)


def _make_key(made: World, project: Project, label: str, terms: KeyTerms) -> None:
    key = apikey_create(
        actor=OPERATOR, project=project, label=label, terms=terms, lifetime_days=None
    )
    made.keys[label] = key.secret
    made.names[key.key.id.hex] = f"key {label}"
    if label != "bare":
        rate_limit_set(actor=OPERATOR, subject=key.key, **LIMITED.get(label, LIMITS))
    if label in BUDGETS:
        budget_set(
            key.key.organization_id,
            key.key.id,
            scope=BudgetScope.KEY,
            limit_nano=BUDGETS[label],
        )
    if label == "revoked":
        apikey_revoke(actor=OPERATOR, key=key.key)


def make_prompts(organization: object, project: Project) -> None:
    """A template with two published versions, one of another project, and one that is a draft."""
    of = project.organization_id
    support = prompt_create(actor=OPERATOR, organization_id=of, name="support")
    versions = PromptVersions(OPERATOR, support)
    for body in (OLDER, SUPPORT):
        versions.publish(versions.draft_create(body))
    ((flagged,),) = rows("SELECT id FROM projects WHERE name = 'flagged'")
    private = prompt_create(actor=OPERATOR, organization_id=of, name="private", project_id=flagged)
    versions = PromptVersions(OPERATOR, private)
    versions.publish(versions.draft_create(OLDER))
    drafted = prompt_create(actor=OPERATOR, organization_id=of, name="drafted")
    PromptVersions(OPERATOR, drafted).draft_create(OLDER)


def make_models() -> dict[str, str]:
    """Catalog and prices; the credentials of the scripted nodes by their names."""
    credentials = {}
    for name, pool, mode, task, (input_pico, cached_pico, output_pico) in MODELS:
        pool_set(actor=OPERATOR, draft=PoolDraft(name=pool, task=task))
        draft = ModelDraft(name=name, pool=pool, context_window=4096, task=task)
        if task == "generate":
            draft = replace(draft, output_tokens_default=64, output_tokens_max=512)
        price = PriceDraft(
            input_pico=input_pico,
            cached_pico=cached_pico,
            output_pico=output_pico,
            batch_permille=501,
            priority_permille=1_503,
        )
        price_publish(actor=OPERATOR, model=model_create(actor=OPERATOR, draft=draft), draft=price)
        if mode:
            node = f"{name}-1"
            credentials[node] = node_credential_create(
                actor=OPERATOR, name=node, pool=pool, models=[name]
            ).secret
    return credentials


def _scripted(made: World, credentials: dict[str, str]) -> Child:
    spec = {
        "url": stack.fleet_url(HOST, made.port),
        "folders": {"plain": str(settings.SHIPPED_MODEL_DIR), "marked": str(_marked(made))},
        "socket": str(made.socket),
        "journal": str(made.journal),
        "nodes": [
            {
                "name": f"{name}-1",
                "model": name,
                "pool": pool,
                "mode": mode,
                "text": "marked" if name in MARKED else "plain",
            }
            for name, pool, mode, *_ in MODELS
            if mode
        ],
    }
    argv = [sys.executable, "-m", "tests.recorded.nodes", json.dumps(spec)]
    env = {CREDENTIALS: json.dumps(credentials)}
    return Child("scripted", argv, env, made.journal.with_name("scripted.log"))


def _marked(made: World) -> Path:
    """The shipped model's folder, with a tokenizer that adds a token before and one behind."""
    folder, weights = made.journal.with_name("marked"), shutil.ignore_patterns("*.safetensors")
    shutil.copytree(settings.SHIPPED_MODEL_DIR, folder, ignore=weights)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    first, last = ((name, tokenizer.token_to_id(name)) for name in MARKS)
    tokenizer.post_processor = TemplateProcessing(
        single=f"{first[0]} $A {last[0]}", special_tokens=[first, last]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
