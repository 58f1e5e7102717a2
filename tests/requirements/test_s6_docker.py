"""S6: what lies in docker/ fits the product: every path, command, option, variable and file exists.

There is no Docker daemon where this runs: images are not built here.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from celery.bin.beat import beat
from celery.bin.worker import worker
from django.core.management import get_commands, load_command_class
from uvicorn.main import main as uvicorn

from controlplane.core.management.commands.sluice import ELSEWHERE
from controlplane.embedded import stack
from inference.__main__ import parser as node_parser
from tests.tidy.test_documents import read, told

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
IMAGES = ("Dockerfile", "node.Dockerfile")
VARIABLE = re.compile(r"\$\{(\w+)(?::[?-][^}]*)?\}")


def instructions(name: str) -> list[tuple[str, str]]:
    """Instructions of a Dockerfile with their arguments, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (DOCKER / name).read_text(), flags=re.MULTILINE)
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines()]
    return [(line.split()[0], line.split(None, 1)[1]) for line in lines if line]


def value(name: str, instruction: str) -> list[str]:
    """The words of a CMD or ENTRYPOINT."""
    (found,) = (text for word, text in instructions(name) if word == instruction)
    words: list[str] = json.loads(found)
    return words


def compose() -> dict[str, Any]:
    """The compose file."""
    made: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return made


def filled(text: str, given: dict[str, str]) -> str:
    """A value of the compose file as `docker compose` reads it with this .env; "" is unset."""
    return re.sub(
        r"\$\{(\w+)(?::-([^}]*))?\}", lambda found: given.get(found[1]) or found[2] or "", text
    )


def ours() -> dict[str, dict[str, Any]]:
    """Services that run our image."""
    return {
        name: service
        for name, service in compose()["services"].items()
        if service["image"] == "sluice"
    }


@pytest.mark.parametrize("name", IMAGES)
def test_what_is_copied_exists_and_is_in_the_context(name: str) -> None:
    ignored = (DOCKER / f"{name}.dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    copied = [
        source
        for word, text in instructions(name)
        if word == "COPY"
        for source in text.split()[:-1]
    ]
    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored, source
    assert {line[1:] for line in ignored if line.startswith("!")} == set(copied)


@pytest.mark.parametrize("name", IMAGES)
def test_what_is_installed_is_there_and_nobody_is_root(name: str) -> None:
    run = " ".join(text for word, text in instructions(name) if word == "RUN")
    locks = re.findall(r"requirements/[\w.-]+", run)
    assert locks and all((ROOT / lock).exists() for lock in locks)
    assert ("USER", "sluice") in instructions(name)
    assert any(
        re.fullmatch(r"python:3\.11\.\d+-slim-\w+", text) for word, text in instructions(name)
    )


def test_the_gateways_command_is_the_one_that_make_run_uses() -> None:
    words = value("Dockerfile", "CMD")
    assert words[:2] == ["uvicorn", "controlplane.asgi:application"]
    uvicorn.make_context("uvicorn", words[1:])
    flags = set(words[2:]) - {"0.0.0.0"}
    assert flags == set(stack.gateway("0.0.0.0", 8000).argv[4:]) - {"0.0.0.0"}


def test_the_nodes_command_is_one_that_nodes_take() -> None:
    entry = value("node.Dockerfile", "ENTRYPOINT")
    assert entry[:3] == ["python", "-m", "inference"]
    for words in (value("node.Dockerfile", "CMD"), compose()["services"]["node"]["command"]):
        options = node_parser().parse_args([*entry[3:], *words])
        assert (ROOT / options.model / "config.json").exists()


def test_commands_of_the_control_plane_exist() -> None:
    services = ours()
    for line in services["setup"]["command"][-1].splitlines():
        python, manage, command, *options = shlex.split(line)
        assert (python, manage) == ("python", "manage.py")
        application = get_commands()[command]
        assert isinstance(application, str)
        made = load_command_class(application, command).create_parser("manage.py", command)
        made.parse_args(options)
    for name, celery in (("worker", worker), ("beat", beat)):
        words = services[name]["command"]
        assert words[:4] == ["celery", "-A", "controlplane.celery", name]
        celery.make_context(name, words[4:], resilient_parsing=True)
        kind, python, manage, sluice, command, *options = services[name]["healthcheck"]["test"]
        assert (kind, python, manage, sluice) == ("CMD", "python", "manage.py", "sluice")
        assert command in ELSEWHERE
        probe = load_command_class("controlplane.core", command)
        assert probe.create_parser("manage.py", command).parse_args(options).process == name


def test_every_variable_is_a_setting_and_every_secret_is_made() -> None:
    settings = read() | told()
    for name, service in ours().items():
        unknown = service["environment"].keys() - settings
        assert unknown == set(), name
    text = (DOCKER / "compose.yaml").read_text()
    needed = {name for name in VARIABLE.findall(text) if f"${{{name}:?}}" in text}
    needed |= {secret["environment"] for secret in compose()["secrets"].values()}
    command = ["sh", str(DOCKER / "make-env.sh")]
    made = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    secrets = dict(line.split("=", 1) for line in made.splitlines())
    assert needed == set(secrets)
    assert len(set(secrets.values())) == len(secrets)
    # Django asks for 50 characters.
    assert all(len(secret) >= 50 and secret.isalnum() for secret in secrets.values())


def test_who_puts_a_proxy_before_it_names_it_in_env() -> None:
    given = {
        "SLUICE_TRUSTED_PROXIES": "172.18.0.1",
        "SLUICE_HTTPS": "true",
        "SLUICE_ALLOWED_HOSTS": "sluice.example.org",
        "SLUICE_PAGES_URL": "https://sluice.example.org",
        "SLUICE_GATEWAY_URL": "https://api.example.org",
    }
    for name, service in ours().items():
        told = service["environment"]
        alone = {key: filled(told[key], {}) for key in given}
        assert alone == {
            "SLUICE_TRUSTED_PROXIES": "",
            "SLUICE_HTTPS": "false",
            "SLUICE_ALLOWED_HOSTS": "localhost,127.0.0.1,web,",
            "SLUICE_PAGES_URL": "http://localhost:8080",
            "SLUICE_GATEWAY_URL": "http://localhost:8000",
        }, name
        behind = {key: filled(told[key], given) for key in told}
        # Health checks, scrapes and nodes go on to use the names inside.
        hosts = f"localhost,127.0.0.1,web,{given['SLUICE_ALLOWED_HOSTS']}"
        origins = {"SLUICE_PAGES_ORIGINS", "SLUICE_TRUSTED_ORIGINS"}
        wanted = given | {"SLUICE_ALLOWED_HOSTS": hosts}
        wanted |= dict.fromkeys(origins, given["SLUICE_PAGES_URL"])
        assert behind.items() >= wanted.items(), name
    text = (ROOT / "docs" / "observability.md").read_text().partition("\n## Containers\n")[2]
    assert all(f"`{name}" in text for name in given)


def test_services_name_what_exists() -> None:
    made = compose()
    for name, service in made["services"].items():
        if "build" in service:
            assert (DOCKER / service["build"]["context"]).resolve() == ROOT
            assert (ROOT / service["build"]["dockerfile"]).is_file()
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            there = (DOCKER / source).exists() if source.startswith(".") else source
            assert there is True or there in made["volumes"], (name, volume)
        assert set(service.get("depends_on", {})) <= set(made["services"])
        assert set(service.get("secrets", [])) <= set(made["secrets"])
    probe = " ".join(ours()["web"]["healthcheck"]["test"])
    assert "/readyz" in probe and probe == " ".join(ours()["gateway"]["healthcheck"]["test"])


def test_prometheus_scrapes_and_warns_of_what_is_there() -> None:
    folder = DOCKER / "prometheus"
    made = yaml.safe_load((folder / "prometheus.yml").read_text())
    services = compose()["services"]
    for job in made["scrape_configs"]:
        assert job["authorization"]["credentials_file"] == "/run/secrets/metrics-token"
        for target in job["static_configs"][0]["targets"]:
            assert target.removesuffix(":8000") in services
    for name in made["rule_files"]:
        groups = yaml.safe_load((folder / name).read_text())["groups"]
        alerts = [rule for group in groups for rule in group["rules"]]
        assert len({rule["alert"] for rule in alerts}) == len(alerts)
        for rule in alerts:
            assert rule["labels"]["severity"] in ("page", "ticket")
            assert rule["annotations"]["summary"]
            assert (ROOT / rule["annotations"]["runbook"]).is_file(), rule["alert"]
            assert rule["expr"].count("(") == rule["expr"].count(")")
            assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}


def test_the_dashboard_is_one_that_grafana_reads() -> None:
    made = json.loads((DOCKER / "grafana/dashboards/sluice.json").read_text())
    sources = yaml.safe_load(
        (DOCKER / "grafana/provisioning/datasources/prometheus.yml").read_text()
    )
    uid = sources["datasources"][0]["uid"]
    ids = [panel["id"] for panel in made["panels"]]
    assert len(set(ids)) == len(ids) and made["timezone"] == "utc"
    taken: set[tuple[int, int]] = set()
    for panel in made["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] == "row":
            continue
        assert panel["title"] and panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == uid
        for target in panel["targets"]:
            assert target["expr"].count("(") == target["expr"].count(")")


def test_postgres_is_healthy_only_once_others_can_reach_it() -> None:
    probe = compose()["services"]["postgres"]["healthcheck"]["test"]
    assert probe[:4] == ["CMD", "pg_isready", "-h", "127.0.0.1"]


def test_ports_are_this_machines_alone_and_images_exact() -> None:
    made = compose()["services"]
    for name, service in made.items():
        for port in service.get("ports", []):
            assert VARIABLE.sub("127.0.0.1", port).startswith("127.0.0.1:"), (name, port)
        if "build" not in service and service["image"] != "sluice":
            assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+(\.\d+)?", service["image"]), name
