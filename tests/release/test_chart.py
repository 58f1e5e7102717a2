"""The Helm chart: valid for each version of Kubernetes that it names, closed by default, and at one
with the composition, the settings and the real API.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from django.conf import settings

from controlplane import asgi
from controlplane.fleet.models import Node
from inference.__main__ import parser as node_parser
from inference.contract.version import VERSION
from inference.node.options import CREDENTIAL_PREFIX
from tests.release.chart import CHART, PACKAGING, ROOT, helm, manifest, objects, rendered
from tests.requirements.test_s6_docker import ours, value
from tests.requirements.test_s6_secrets import GIVEN, Installation, alive, before
from tests.support.loopback import HOST, reserve_port
from tests.support.product import fresh_data
from tests.support.servers import Servers
from tests.support.waiting import wait_for
from tests.tidy.test_documents import read, told

VERSIONS = tuple(f"1.{minor}.0" for minor in range(28, 38))
EVERY_VALUE = Path(__file__).with_name("every_value.yaml")
SCHEMAS = PACKAGING / "kubernetes_validate" / "kubernetes-json-schema"
CRDS = Path(__file__).with_name("crds")
CUSTOM = ("keda.sh", "monitoring.coreos.com")
ENROL = CHART / "files" / "enrol.py"
PODS = ("Deployment", "StatefulSet", "Job")
# Names that the kubelet fills in, not settings.
FILLED = {"POD_IP", "POD_NAME"}


def is_custom(made: dict[str, Any]) -> bool:
    return made["apiVersion"].partition("/")[0] in CUSTOM


@pytest.fixture(scope="module", params=[None, EVERY_VALUE], ids=["defaults", "every value"])
def made(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return objects(rendered(values=request.param))


def pods(made: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Component and spec of each kind of pod."""
    for one in made:
        if one["kind"] in PODS:
            template = one["spec"]["template"]
            yield template["metadata"]["labels"]["app.kubernetes.io/component"], template["spec"]


def containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [*spec.get("initContainers", []), *spec["containers"]]


def schema_of(one: dict[str, Any], version: str) -> dict[str, Any]:
    """The published strict schema of an object: no field besides those that the version has."""
    group, _, of_group = one["apiVersion"].rpartition("/")
    short = f"-{group.partition('.')[0]}" if group else ""
    name = f"{one['kind'].lower()}{short}-{of_group}.json"
    found: dict[str, Any] = json.loads((_schemas(version) / name).read_text())
    return found


@cache
def definitions(version: str) -> Any:
    return json.loads((_schemas(version) / "_definitions.json").read_text())


def _schemas(version: str) -> Path:
    return SCHEMAS / f"v{version}-local-strict"


def faults(one: dict[str, Any], version: str) -> list[str]:
    """What the schema of its kind says against an object."""
    schema = {**schema_of(one, version), "$id": "file:///kind.json"}
    made = jsonschema_rs.Draft7Validator(schema, retriever=lambda _: definitions(version))
    return [error.message for error in made.iter_errors(one)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", [None, EVERY_VALUE], ids=["defaults", "every value"])
def test_it_is_valid_for_each_version(version: str, values: Path | None) -> None:
    for one in objects(rendered(version, values)):
        if not is_custom(one):
            assert faults(one, version) == [], (one["kind"], one["metadata"]["name"])


def test_the_schemas_would_find_a_mistake(made: list[dict[str, Any]]) -> None:
    (gateway,) = (
        one
        for one in made
        if one["kind"] == "Deployment" and one["metadata"]["name"] == "sluice-gateway"
    )
    gateway["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    try:
        assert any("readinesProbe" in told for told in faults(gateway, VERSIONS[0]))
    finally:
        del gateway["spec"]["template"]["spec"]["containers"][0]["readinesProbe"]


def check_custom(made: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["node", CRDS / "check.mjs"], input=json.dumps(made), capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_custom_resources_are_as_their_operators_define_them() -> None:
    found = [one for one in objects(rendered(values=EVERY_VALUE)) if is_custom(one)]
    assert {one["kind"] for one in found} == {
        "PrometheusRule", "ScaledObject", "ServiceMonitor", "TriggerAuthentication",
    }  # fmt: skip
    done = check_custom(found)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(found)
    (scaled,) = (one for one in found if one["kind"] == "ScaledObject")
    # The signal has a calm of its own.
    behavior = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == 0
    scaled["spec"]["maxReplicaCount"] = "many"
    assert check_custom([scaled]).returncode != 0


def test_lint_finds_nothing_and_wrong_values_are_named(tmp_path: Path) -> None:
    for values in (None, EVERY_VALUE):
        done = helm("lint", "--strict", str(CHART), values=values)
        assert done.returncode == 0, done.stdout
    for text, named in (
        ("gateway: {replica: 3}", "replica"),
        ("database: {url: 'postgres://sluice_app:secret@db/sluice'}", "url"),
        ("pools: {Large: {}}", "Large"),
        ("existingSecret: ''", "existingSecret"),
    ):
        file = tmp_path / "values.yaml"
        file.write_text(text)
        refused = helm("template", "sluice", str(CHART), values=file)
        assert refused.returncode != 0 and named in refused.stderr, text


def test_the_plain_manifest_is_the_chart_with_its_defaults() -> None:
    assert (ROOT / "docker" / "manifest.yaml").read_text() == manifest(), "make manifest"


def test_it_is_of_this_release() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (about["version"], about["appVersion"]) == (VERSION, VERSION)


def test_no_process_may_do_more_than_it_must(made: list[dict[str, Any]]) -> None:
    for component, spec in pods(made):
        assert spec["automountServiceAccountToken"] is False, component
        security = spec["securityContext"]
        assert security["runAsNonRoot"] and security["runAsUser"] == 10_001, component
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, component
        for container in containers(spec):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, component
            assert container["resources"]["limits"]["memory"], component
            assert {"cpu", "memory"} <= set(container["resources"]["requests"]), component
            volumes = {volume["name"] for volume in spec["volumes"]}
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes, component


def secret_sources(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a pod's volumes have of Secrets; one without items has all that is in it."""
    for volume in spec["volumes"]:
        sources = volume.get("projected", {}).get("sources", [volume])
        yield from (each["secret"] for each in sources if "secret" in each)


def secret_keys(spec: dict[str, Any], *, optional: bool = False) -> set[str]:
    return {
        item["key"]
        for source in secret_sources(spec)
        for item in source["items"] or pytest.fail("all of the Secret")
        if source.get("optional", False) is optional
    }


def test_each_process_has_its_own_secrets_alone(made: list[dict[str, Any]]) -> None:
    found = dict(pods(made))
    ours = {name: secret_keys(spec) for name, spec in found.items() if name in GIVEN}
    assert ours == {name: GIVEN[name] for name in ours} and ours.keys() >= GIVEN.keys() - {
        "connector"
    }
    for name in ours:
        assert secret_keys(found[name], optional=True) == before(GIVEN[name]), name
    for name in found.keys() - GIVEN.keys():
        spec = found[name]
        assert secret_keys(spec) == {"operator-token"}
        (node,) = spec["containers"]
        assert "operator" not in {mount["name"] for mount in node["volumeMounts"]}
    for name, spec in found.items():
        for container in containers(spec):
            for variable in container.get("env", []):
                assert set(variable) == {"name", "value"} or variable["name"] in FILLED, name


def test_commands_settings_and_options_are_the_products(made: list[dict[str, Any]]) -> None:
    composed, known = ours(), read() | told() | FILLED
    for component, spec in pods(made):
        (container,) = spec["containers"]
        names = {variable["name"] for variable in container["env"]}
        if component in GIVEN:
            assert names <= known, component
        if component in ("worker", "beat"):
            assert container["command"] == composed[component]["command"]
            probe = container["livenessProbe"]["exec"]["command"]
            assert probe == composed[component]["healthcheck"]["test"][1:]
        if component in ("gateway", "web"):
            assert "command" not in container
            probes = {container[f"{kind}Probe"]["httpGet"]["path"] for kind in
                      ("startup", "liveness", "readiness")}  # fmt: skip
            assert probes == {"/startupz", "/healthz", "/readyz"}
        if component.startswith("pool-"):
            entry = value("node.Dockerfile", "ENTRYPOINT")
            options = node_parser().parse_args([*entry[3:], *container["args"]])
            assert options.pool == component.removeprefix("pool-")
    (setup,) = (spec["containers"][0] for name, spec in pods(made) if name == "setup")
    lines = setup["command"][-1].splitlines()
    wanted = composed["setup"]["command"][-1].splitlines()
    assert lines[:3] == wanted[:3] and all("pool_set" in line for line in lines[3:])


def test_what_points_at_something_finds_it(made: list[dict[str, Any]]) -> None:
    kinds = {(one["kind"], one["metadata"]["name"]) for one in made}
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in made if one["kind"] in PODS]
    for one in made:
        spec = one.get("spec", {})
        selector = spec.get("selector", {})
        wanted = selector if one["kind"] == "Service" else selector.get("matchLabels")
        if wanted and one["kind"] != "ServiceMonitor":
            assert any(wanted.items() <= each.items() for each in labels), one["metadata"]
        if one["kind"] == "ServiceMonitor":
            services = [each["metadata"]["labels"] for each in made if each["kind"] == "Service"]
            assert sum(wanted.items() <= each.items() for each in services) == 1
        if one["kind"] == "ScaledObject":
            target = spec["scaleTargetRef"]
            assert (target["kind"], target["name"]) in kinds
        if one["kind"] == "NetworkPolicy":
            chosen = spec["podSelector"]["matchLabels"]
            assert any(chosen.items() <= each.items() for each in labels), one["metadata"]
    for _, spec in pods(made):
        for volume in spec["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in kinds


def test_each_path_gets_where_it_belongs_and_streams_pass() -> None:
    made = objects(rendered())
    backends: dict[str, str] = {}
    for one in made:
        if one["kind"] == "Ingress":
            (rule,) = one["spec"]["rules"]
            for path in rule["http"]["paths"]:
                backends[path["path"]] = path["backend"]["service"]["name"]
            hints = one["metadata"]["annotations"]
            short = {key.rpartition("/")[2]: text for key, text in hints.items()}
            assert int(short["proxy-read-timeout"]) >= settings.REQUEST_DEADLINE_S
            if one["metadata"]["name"] == "sluice-gateway":
                assert short["proxy-buffering"] == "off"
    assert backends == {
        "/": "sluice-web",
        "/v1/organization": "sluice-web",
        **dict.fromkeys(("/v1", "/fleet", *asgi.OF_SERVERS), "sluice-gateway"),
    }


@pytest.mark.timeout(600)
def test_a_pod_is_set_up_and_enrolled_by_the_real_product(servers: Servers, tmp_path: Path) -> None:
    with fresh_data(servers):
        installation = Installation(tmp_path)
        (setup,) = (spec for name, spec in pods(objects(rendered())) if name == "setup")
        for line in setup["containers"][0]["command"][-1].splitlines():
            done = installation.run("setup", *shlex.split(line)[1:])
            assert done.returncode == 0, done.stderr
        port = reserve_port()
        words = [
            word.replace("8000", str(port)).replace("0.0.0.0", HOST)
            for word in value("Dockerfile", "CMD")
        ]
        web = installation.child("web", words)
        web.start()
        try:
            wait_for(lambda: alive(web, {"web": port}), "sign of life of web")
            first = enrolled(tmp_path, f"http://{HOST}:{port}")
            # The pod that takes its place has its name.
            second = enrolled(tmp_path, f"http://{HOST}:{port}")
        finally:
            web.stop()
        assert first != second and second.startswith(CREDENTIAL_PREFIX)
        node = Node.objects.get(name="sluice-pool-default-0")
        assert node.pool == "default"


def enrolled(folder: Path, web: str) -> str:
    """The credential that a pod's first container gets."""
    file = folder / "credential"
    secret = settings.DATA_DIR / "secrets" / "operator-token"
    given = {"SLUICE_OPERATOR_TOKEN_FILE": str(secret), "SLUICE_CREDENTIAL_FILE": str(file)}
    done = subprocess.run(
        [sys.executable, ENROL, web, "sluice-pool-default-0", "default", "[]"],
        env={**os.environ, **given}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    return file.read_text().strip()
