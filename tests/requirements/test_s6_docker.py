"""S6: what lies in docker/ fits the product: every path, command, option, variable and file exists.

There is no Docker daemon where this runs: images are not built here. The files are held against the
schema of compose files and read by hadolint.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
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
PACKAGING = ROOT / ".packaging"
ALERTMANAGER = "alertmanager.yml"
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
    locks = set(re.findall(r"requirements/([\w-]+)\.txt", run))
    locks |= {lock for found in re.findall(r'locks="?([\w -]+)', run) for lock in found.split()}
    assert locks and all((ROOT / "requirements" / f"{lock}.txt").exists() for lock in locks)
    copied = " ".join(text for word, text in instructions(name) if word == "COPY")
    assert locks == set(re.findall(r"requirements/([\w-]+)\.txt", copied))
    assert ("USER", "10001:10001") in instructions(name)
    (base,) = (text for word, text in instructions(name) if word == "FROM")
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+", base)


def test_hadolint_finds_nothing() -> None:
    program = PACKAGING / "bin" / "hadolint"
    assert program.exists(), "The tests need hadolint: make .packaging, as `make test` does."
    done = subprocess.run(
        [program, "--no-color", *(DOCKER / name for name in IMAGES)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")


def test_the_composition_is_valid() -> None:
    vendored = PACKAGING / "check_jsonschema" / "builtin_schemas" / "vendor" / "compose-spec.json"
    validator = jsonschema_rs.validator_for(json.loads(vendored.read_text()))
    assert [error.message for error in validator.iter_errors(compose())] == []
    wrong = compose()
    wrong["services"]["web"]["read_onyl"] = True
    assert not validator.is_valid(wrong)


def test_no_service_may_do_more_than_it_must() -> None:
    made = compose()["services"]
    for name, service in made.items():
        assert service["read_only"] is True and service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert set(service.get("cap_add", [])) <= {"NET_BIND_SERVICE", "CHOWN"}, name
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}, name
        assert "/tmp" in service["tmpfs"], name
        # Those that end by themselves, and nodes, which nobody can ask.
        if name not in ("setup", "connector", "proxy-state", "node", "node-gpu"):
            assert service["healthcheck"]["test"], name
        if name != "proxy-state":
            assert service["deploy"]["resources"]["limits"]["pids"], name
    # Two that build one image at once would get in each other's way.
    built = [service["image"] for service in made.values() if "build" in service]
    assert sorted(built) == ["sluice", "sluice-node", "sluice-node-vllm"]


def test_a_node_that_cannot_serve_is_not_started_for_ever() -> None:
    for name in ("node", "node-gpu"):
        assert re.fullmatch(r"on-failure:\d", compose()["services"][name]["restart"])


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
    gpu = compose()["services"]["node-gpu"]
    options = node_parser().parse_args([*entry[3:], *gpu["command"]])
    assert (options.engine, str(options.model)) == ("vllm", "/model")
    assert any(volume.endswith(f":{options.model}:ro") for volume in gpu["volumes"])


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


# Of no product, and read by all: docs/deployment.md tells what goes by the proxy.
PROXY_VARIABLES = {"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"}


def test_every_variable_is_a_setting() -> None:
    settings = read() | told()
    for name, service in ours().items():
        unknown = service["environment"].keys() - settings - PROXY_VARIABLES
        assert unknown == set(), name


def test_each_secret_is_made_once_and_a_given_one_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"

    def made(**given: str) -> dict[str, str]:
        command = ["sh", str(DOCKER / "make-secrets.sh"), str(folder)]
        subprocess.run(command, check=True, env={**os.environ, **given})
        return {file.name: file.read_text() for file in folder.iterdir()}

    first = made(REDIS_PASSWORD="r" * 64)
    assert first["redis"] == "r" * 64 and made(POSTGRES_PASSWORD="p" * 64) == first
    for name, secret in compose()["secrets"].items():
        assert secret == {"file": f"./secrets/{name}"}
    # The node's token comes from the installation itself.
    assert set(first) == set(compose()["secrets"]) - {"enrol-token"}
    # Nothing is being replaced yet.
    earlier = {name for name in first if name.endswith(".before")}
    assert earlier and {first[name] for name in earlier} == {""}
    random = [first[name] for name in first.keys() - earlier - {"alert-webhook"}]
    assert len(set(random)) == len(random)
    # Django asks for 50 characters.
    assert all(len(secret) >= 50 and secret.isalnum() for secret in random)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o444}


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
            "SLUICE_TRUSTED_PROXIES": "172.30.117.2",
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
    made = compose()
    assert made["services"]["proxy"]["networks"]["default"]["ipv4_address"] == "172.30.117.2"
    text = (ROOT / "docs" / "deployment.md").read_text().partition("\n## Containers\n")[2]
    assert all(f"`{name}" in text for name in given)


def test_services_name_what_exists() -> None:
    made = compose()
    for name, service in made["services"].items():
        if "build" in service:
            assert (DOCKER / service["build"]["context"]).resolve() == ROOT
            assert (ROOT / service["build"]["dockerfile"]).is_file()
        for volume in service.get("volumes", []):
            source = filled(volume, {}).split(":")[0]
            if source == "./model":
                continue
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
            link = rule["annotations"]["runbook_url"]
            pages, _, slug = link.partition("/runbooks/")
            assert pages == "{{ $externalLabels.pages }}"
            assert (ROOT / "docs" / "runbooks" / f"{slug}.md").is_file(), rule["alert"]
            assert rule["expr"].count("(") == rule["expr"].count(")")
            assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}


def test_alerts_reach_somebody() -> None:
    folder = DOCKER / "prometheus"
    scraping = yaml.safe_load((folder / "prometheus.yml").read_text())
    (pair,) = scraping["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]
    service = compose()["services"][pair.removesuffix(":9093")]
    assert f"--config.file=/etc/prometheus/{ALERTMANAGER}" in service["command"]
    made = yaml.safe_load((folder / ALERTMANAGER).read_text())
    (receiver,) = made["receivers"]
    assert made["route"]["receiver"] == receiver["name"]
    (hook,) = receiver["webhook_configs"]
    assert Path(hook["url_file"]).name in service["secrets"]
    variable = scraping["global"]["external_labels"]["pages"].strip("${}")
    assert variable in compose()["services"]["prometheus"]["environment"]


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
            # The proxy with TLS is there for others.
            closed = VARIABLE.sub("127.0.0.1", port).startswith("127.0.0.1:")
            assert closed is (name != "proxy"), (name, port)
        if "build" not in service and service["image"] != "sluice":
            assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+(\.\d+)?", service["image"]), name
