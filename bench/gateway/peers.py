"""Other programs that pass a model's stream on: nginx, the Rust routers of vLLM and SGLang, LiteLLM's proxy.

Each is looked for by the variable TAILRACE_BENCH_<NAME> (the path of its command), then on the PATH; the benchmark says
which are missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import msgspec

from bench.gateway.native import question
from bench.gateway.programs import Command, Program, free_port

NGINX = """
worker_processes 1; daemon off; pid {home}/nginx.pid; error_log {home}/error.log;
events {{ worker_connections 8192; }}
http {{
  access_log off; client_body_temp_path {home}/body; proxy_temp_path {home}/proxy; fastcgi_temp_path {home}/fastcgi;
  uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi; keepalive_requests 100000000;
  upstream provider {{ server 127.0.0.1:{provider}; keepalive 4096; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://provider; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""


def found(name: str) -> str:
    """The command's path; empty when it is not here."""
    named = os.environ.get(f"TAILRACE_BENCH_{name.upper().replace('-', '_')}", "")
    return named or shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin") or ""


def version_of(name: str) -> str:
    """As the program says it, or the Python package that it came with."""
    program = found(name)
    python = Path(program).resolve().parent / "python"
    if python.exists():
        asking = [str(python), "-c", f"from importlib.metadata import version; print({name!r}, version({name!r}))"]
    else:
        asking = [program, "-v" if name == "nginx" else "--version"]
    done = subprocess.run(asking, capture_output=True, text=True, check=False, timeout=60)
    return (done.stdout or done.stderr).strip().removeprefix("nginx version: ").partition("\n")[0]


def nginx(provider: int, port: int, home: Path) -> list[str]:
    config = home / "nginx.conf"
    config.write_text(NGINX.format(home=home, provider=provider, port=port), encoding="utf-8")
    return [found("nginx"), "-p", str(home), "-c", str(config)]


def router(name: str, *first: str) -> Command:
    """A Rust router in front of one worker."""

    def command(provider: int, port: int, _home: Path) -> list[str]:
        worker = f"http://127.0.0.1:{provider}"
        where = ["--host", "127.0.0.1", "--port", str(port), "--worker-urls", worker]
        quiet = ["--policy", "random", "--prometheus-port", str(free_port()), "--log-level", "error"]
        return [found(name), *first, *where, *quiet]

    return command


def litellm(provider: int, port: int, home: Path) -> list[str]:
    upstream = {"model": "openai/bench", "api_base": f"http://127.0.0.1:{provider}/v1", "api_key": "none"}
    config = {
        "model_list": [{"model_name": "bench", "litellm_params": upstream}],
        "general_settings": {"dangerously_permit_weak_or_unset_master_key": True},  # on loopback, for these minutes
    }
    (home / "litellm.yaml").write_bytes(msgspec.json.encode(config))
    return [found("litellm"), "--config", str(home / "litellm.yaml"), "--host", "127.0.0.1", "--port", str(port)]


def peer(name: str, label: str, command: Command) -> Program:
    variable = f"TAILRACE_BENCH_{name.upper().replace('-', '_')}"
    missing = "" if found(name) else f"no {name} on the PATH, and {variable} does not name it"
    return Program(name, label, command, question("bench"), missing=missing, version=partial(version_of, name))


PEERS = [
    peer("nginx", "nginx, bytes only", nginx),
    peer("vllm-router", "vLLM router (Rust)", router("vllm-router")),
    peer("sglang-router", "SGLang router (Rust)", router("sglang-router", "launch")),
    peer("litellm", "LiteLLM proxy", litellm),
]
