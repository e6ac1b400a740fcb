"""The files of `deploy/` are held to the code: they parse, and every command and config key in them exists."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tailrace.cli.commands.serve import GRACE_S
from tailrace.cli.main import parser_of
from tailrace.config.load import Config, load

DEPLOY = Path(__file__).parents[1] / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
PROBE = re.compile(r'http://127\.0\.0\.1:8642(/\w+)"')


def text_of(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all(text_of(name)))


def config_in(text: str, home: Path) -> Config:
    (home / "config.yaml").write_text(text, encoding="utf-8")
    return load({}, home)


def parsed(arguments: list[str]) -> Any:
    """What the command line makes of these. Ends the test where it refuses them."""
    return parser_of(arguments[0]).parse_args(arguments[1:])


def by_kind() -> dict[str, Any]:
    return {document["kind"]: document for document in documents("kubernetes.yaml")}


def container() -> Any:
    [found] = by_kind()["Deployment"]["spec"]["template"]["spec"]["containers"]
    return found


def test_the_documents_name_every_file() -> None:
    pages = [DEPLOY.parent / f"docs/{name}.md" for name in ("install", "operations", "observability")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    named = set(re.findall(r"\]\(\.\./deploy/([^)]+)\)", text))
    assert named | {"config.yaml"} == {str(file.relative_to(DEPLOY)) for file in FILES}


# ── the config ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_config_of_the_nodes_is_read_without_a_mistake(tmp_path: Path) -> None:
    config = config_in(text_of("config.yaml"), tmp_path)
    assert config.store.url.startswith("postgresql://")
    assert config.bus.url.startswith("redis://")
    assert config.server.workers == 0
    assert "@" in config.store.url
    assert ":" not in config.store.url.split("//")[1].split("@")[0], "the password is not in the file"


def test_the_config_of_kubernetes_is_the_same(tmp_path: Path) -> None:
    told = by_kind()["ConfigMap"]["data"]["config.yaml"]
    first, second = config_in(text_of("config.yaml"), tmp_path), config_in(told, tmp_path)
    assert [getattr(first, name) for name in ("model", "store", "bus", "server")] == [
        getattr(second, name) for name in ("model", "store", "bus", "server")
    ]


# ── the commands ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_container_starts_a_command_that_exists() -> None:
    said = dict(re.findall(r"^(ENTRYPOINT|CMD) (\[.*\])$", text_of("Containerfile"), re.MULTILINE))
    assert json.loads(said["ENTRYPOINT"]) == ["tailrace"]
    assert parsed(json.loads(said["CMD"])).workers == 0


def test_the_container_installs_extras_that_exist() -> None:
    text = text_of("Containerfile")
    [extras] = re.findall(r"^ARG EXTRAS=([a-z,]+)$", text, re.MULTILINE)
    assert '".[$EXTRAS]"' in text
    declared = (DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8")
    for extra in extras.split(","):
        assert re.search(rf"^{extra} = \[", declared, re.MULTILINE), extra
    assert "prices" in extras, "a key with usd_per_day, as docs/teams.md has it, does not start without them"


def test_the_container_is_given_all_that_it_copies_and_names_its_user_by_number() -> None:
    text = text_of("Containerfile")
    copied = [word for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE) for word in line.split()]
    ignored = (DEPLOY.parent / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert sorted(line[1:] for line in ignored if line.startswith("!")) == sorted(copied)
    assert "*" in ignored
    assert re.search(r"^USER \d+$", text, re.MULTILINE), "Kubernetes cannot tell that a name is not root's"


def test_kubernetes_starts_a_command_that_exists() -> None:
    assert parsed(container()["args"]).host == "0.0.0.0"


def test_the_unit_is_one_and_starts_a_command_that_exists(tmp_path: Path) -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text_of("tailrace.service"))
    program, *arguments = unit["Service"]["ExecStart"].split()
    assert Path(program).name == "tailrace"
    assert parsed(arguments).workers == 0
    assert unit["Service"]["KillMode"] == "mixed"
    assert float(unit["Service"]["TimeoutStopSec"]) > config_in("", tmp_path).server.drain_s + GRACE_S


def test_the_backup_unit_starts_a_command_that_exists_and_has_a_timer() -> None:
    text = text_of("tailrace-backup.service")
    [command] = re.findall(r"ExecStart=/bin/sh -c 'exec /opt/tailrace/bin/tailrace (.*)'", text)
    args = parsed(shlex.split(command))
    assert (args.command, args.force) == ("backup", True)
    for shared in ("Environment=TAILRACE_HOME=/var/lib/tailrace", "EnvironmentFile=-/etc/tailrace/environment"):
        assert shared in text
        assert shared in text_of("tailrace.service"), "the backup is of the home directory that is served"
    assert (DEPLOY / "tailrace-backup.timer").is_file()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_finds_no_mistake_in_the_units(tmp_path: Path) -> None:
    units = []
    for file in (*DEPLOY.glob("*.service"), *DEPLOY.glob("*.timer")):
        units.append(tmp_path / file.name)
        units[-1].write_text(text_of(file.name).replace("/opt/tailrace/bin/tailrace", "/bin/true"), encoding="utf-8")
    assert len(units) == 3
    command = ["systemd-analyze", "verify", "--man=no", *map(str, units)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert [line for line in done.stderr.splitlines() if "tailrace" in line] == []
    night = re.findall(r"OnCalendar=(.*)", text_of("tailrace-backup.timer"))
    subprocess.run(["systemd-analyze", "calendar", *night], check=True, capture_output=True, timeout=60)


# ── compose and Kubernetes ───────────────────────────────────────────────────────────────────────────────────


def test_compose_has_two_nodes_and_what_they_need() -> None:
    [compose] = documents("compose.yaml")
    services = compose["services"]
    assert set(services) == {"node-a", "node-b", "balancer", "postgres", "redis"}
    for node in ("node-a", "node-b"):
        assert set(services[node]["depends_on"]) == {"postgres", "redis"}
        assert "TAILRACE_API_KEY" in services[node]["environment"]
        build = services[node]["build"]
        assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Containerfile"
    for service in services.values():
        for mounted in service.get("volumes", ()):
            source = mounted.split(":")[0]
            assert (DEPLOY / source).is_file() if source.startswith(".") else source in compose["volumes"], mounted


def test_a_node_has_longer_to_stop_than_its_drain(tmp_path: Path) -> None:
    drain_s = config_in(text_of("config.yaml"), tmp_path).server.drain_s
    [compose] = documents("compose.yaml")
    grace_s = float(compose["services"]["node-a"]["stop_grace_period"].removesuffix("s"))
    pod = by_kind()["Deployment"]["spec"]["template"]["spec"]
    pause_s = float(container()["lifecycle"]["preStop"]["exec"]["command"][1])
    assert grace_s > drain_s + GRACE_S
    assert pod["terminationGracePeriodSeconds"] > pause_s + drain_s + GRACE_S


def test_kubernetes_probes_ask_routes_that_exist() -> None:
    live, ready = container()["livenessProbe"], container()["readinessProbe"]
    assert live["httpGet"]["path"] == "/healthz"
    assert PROBE.findall(ready["exec"]["command"][-1]) == ["/readyz"]
    [compose] = documents("compose.yaml")
    assert PROBE.findall(compose["services"]["node-a"]["healthcheck"]["test"][-1]) == ["/readyz"]
    for program in (ready["exec"]["command"][-1], compose["services"]["node-a"]["healthcheck"]["test"][-1]):
        compile(program, "probe", "exec")


def test_kubernetes_objects_name_each_other() -> None:
    objects = by_kind()
    assert set(objects) == {"ConfigMap", "Deployment", "Service", "PodDisruptionBudget"}
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert objects["Service"]["spec"]["selector"] == labels
    assert objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert objects["PodDisruptionBudget"]["spec"]["minAvailable"] < objects["Deployment"]["spec"]["replicas"]
    assert objects["Service"]["spec"]["ports"][0]["targetPort"] == container()["ports"][0]["name"]


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_no_image_names_a_registry(file: Path) -> None:
    images = re.findall(r"^\s*(?:FROM|image:)\s+(\S+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    assert [image for image in images if "/" in image] == []


# ── balancers ────────────────────────────────────────────────────────────────────────────────────────────────


def test_balancers_do_not_buffer_and_know_the_nodes(tmp_path: Path) -> None:
    [compose] = documents("compose.yaml")
    nodes = [name for name in compose["services"] if name.startswith("node-")]
    port = config_in(text_of("config.yaml"), tmp_path).server.port
    nginx, caddy = text_of("nginx.conf"), text_of("Caddyfile")
    for node in nodes:
        assert f"server {node}:{port} " in nginx
        assert f" {node}:{port}" in caddy
    for directive in ("proxy_buffering off;", "proxy_read_timeout 3600s;", "proxy_http_version 1.1;", "gzip off;"):
        assert directive in nginx
    assert "proxy_set_header Host $http_host;" in nginx, "$host has no port: the page's own origin would be refused"
    assert "non_idempotent" not in nginx, "a POST that was sent is not sent twice"
    assert "flush_interval" not in caddy.replace("`flush_interval -1`", ""), "Caddy up to 2.8 hides a disconnect then"
    assert "stream_close_delay" not in caddy, "Caddy 2.6, as Debian 12 has it, does not know it"
    assert nginx.count("{") == nginx.count("}")
    assert caddy.count("{") == caddy.count("}")


def test_traefik_does_not_buffer_and_knows_the_nodes(tmp_path: Path) -> None:
    [compose] = documents("compose.yaml")
    port = config_in(text_of("config.yaml"), tmp_path).server.port
    [traefik] = documents("traefik.yaml")
    [router], [service] = traefik["http"]["routers"].values(), traefik["http"]["services"].values()
    balancer = service["loadBalancer"]
    assert router["service"] in traefik["http"]["services"]
    nodes = [f"http://{name}:{port}" for name in compose["services"] if name.startswith("node-")]
    assert [server["url"] for server in balancer["servers"]] == nodes
    assert balancer["responseForwarding"]["flushInterval"].startswith("-")
    assert balancer["healthCheck"]["path"] == "/healthz"
    transport = traefik["http"]["serversTransports"][balancer["serversTransport"]]
    assert transport["forwardingTimeouts"]["responseHeaderTimeout"] == "0s"
    assert "middlewares" not in router
    assert "respondingTimeouts.readTimeout=0" in text_of("traefik.yaml")


@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx")
def test_nginx_finds_no_mistake(tmp_path: Path) -> None:
    config = tmp_path / "nginx.conf"
    config.write_text(re.sub(r"node-[ab]", "127.0.0.1", text_of("nginx.conf")), encoding="utf-8")
    command = ["nginx", "-t", "-q", "-c", str(config), "-p", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "test failed" not in done.stderr, done.stderr


@pytest.mark.skipif(shutil.which("caddy") is None, reason="needs Caddy")
def test_caddy_finds_no_mistake(tmp_path: Path) -> None:
    command = ["caddy", "adapt", "--config", str(DEPLOY / "Caddyfile"), "--adapter", "caddyfile"]
    home = dict.fromkeys(("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), str(tmp_path))
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env={"PATH": os.defpath, **home}
    )
    assert (done.returncode, done.stderr) == (0, "")
    [server] = json.loads(done.stdout)["apps"]["http"]["servers"].values()
    assert server["listen"] == [":8080"]
