"""`manage.py model_create`: a model with a price in force, or neither."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from controlplane.catalog.models import Model
from controlplane.catalog.selectors import model_find, price_list

pytestmark = pytest.mark.usefixtures("database")
GOOD = {
    "--context-window": "4096",
    "--output-default": "256",
    "--output-max": "1024",
    "--input-usd": "0.15",
    "--cached-usd": "0.03",
    "--output-usd": "0.6",
}


def model_create(name: str, **changed: str) -> None:
    flags = {**GOOD, **{f"--{flag.replace('_', '-')}": value for flag, value in changed.items()}}
    words = [f"{flag}={value}" for flag, value in flags.items()]
    call_command("model_create", name, *words, stdout=StringIO())


def test_the_model_has_its_price() -> None:
    model_create("tiny")
    model = model_find(name="tiny")
    assert model is not None
    assert (model.pool, model.context_window) == ("default", 4096)
    assert (model.output_tokens_default, model.output_tokens_max) == (256, 1024)
    (price,) = price_list(model=model)
    assert (price.input_pico, price.cached_pico, price.output_pico) == (150_000, 30_000, 600_000)
    with pytest.raises(CommandError, match="NAME"):
        model_create("tiny")


@pytest.mark.parametrize(
    ("name", "changed", "named"),
    [
        ("no name", {}, "NAME"),
        ("tiny", {"pool": "gold"}, "--pool"),
        ("tiny", {"context_window": "-1"}, "--context-window"),
        ("tiny", {"output_max": "9999"}, "--output-max"),
        ("tiny", {"output_usd": "cheap"}, "--output-usd"),
        ("tiny", {"input_usd": "0.0000001"}, "--input-usd"),
        ("tiny", {"cached_usd": "0.2"}, "--cached-usd"),
    ],
)
def test_a_wrong_argument_is_named(name: str, changed: dict[str, str], named: str) -> None:
    with pytest.raises(CommandError, match=named):
        model_create(name, **changed)
    assert not Model.objects.exists()


def embed_create(*words: str) -> None:
    call_command("model_create", "encoder", "--task=embed", *words, stdout=StringIO())


def test_a_model_that_embeds_has_one_price_and_no_output() -> None:
    call_command("pool_set", "embeddings", "--task=embed", stdout=StringIO())
    embed_create("--context-window=512", "--input-usd=0.02", "--pool=embeddings")
    model = model_find(name="encoder")
    assert model is not None
    assert (model.task, model.pool) == ("embed", "embeddings")
    assert (model.output_tokens_default, model.output_tokens_max) == (0, 0)
    (price,) = price_list(model=model)
    assert (price.input_pico, price.cached_pico, price.output_pico) == (20_000, 20_000, 0)


def test_flags_of_the_other_task_are_named() -> None:
    with pytest.raises(CommandError, match="--output-usd"):
        embed_create("--context-window=512", "--input-usd=0.02", "--output-usd=1")
    with pytest.raises(CommandError, match="--output-default"):
        call_command("model_create", "tiny", "--context-window=512", "--input-usd=0.02")
    assert not Model.objects.exists()
