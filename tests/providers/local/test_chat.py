"""The first thing a newcomer does: ask the embedded model, with no key."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def home(real_models: Path, tmp_path: Path) -> Path:
    (tmp_path / "models").symlink_to(real_models)
    return tmp_path


def tailrace(home: Path, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TAILRACE_", "HERMES_"))}
    return subprocess.run(
        [sys.executable, "-m", "tailrace", "chat", *args],
        input=stdin,
        capture_output=True,
        text=True,
        env={**env, "TAILRACE_HOME": str(home)},
        timeout=120,
        check=False,
    )


def test_a_question_on_a_pipe_is_answered_by_the_embedded_model(home: Path) -> None:
    # Where it does not find its end, a thousand tokens take minutes on a busy machine.
    (home / "config.yaml").write_text("providers: {local: {extra_body: {max_tokens: 60}}}")
    done = tailrace(home, stdin="Say hi.\n")
    assert done.returncode in (0, 3)  # 3: a model this small may not find its end
    assert len(done.stdout.split()) >= 1
    assert re.fullmatch(r"local/smollm2-135m · .* in, \d+ out\n", done.stderr) or done.returncode == 3


def test_a_model_that_is_not_embedded_is_refused_in_one_line(home: Path) -> None:
    done = tailrace(home, "-q", "hi", "--provider", "local", "--model", "gpt-5")
    assert (done.returncode, done.stdout) == (1, "")
    refusal = "error: model: the embedded model is smollm2-135m, not gpt-5: name another provider's as <provider>/gpt-5"
    assert done.stderr.startswith(refusal)
    assert done.stderr.count("\n") == 1


def test_a_model_path_is_read_from_the_config(home: Path) -> None:
    (home / "config.yaml").write_text("providers: {local: {model_path: models/none.gguf}}")
    done = tailrace(home, "-q", "hi")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        f"error: {home}/config.yaml:1: providers.local.model_path: {home}/models/none.gguf cannot be read"
    )


def test_ctrl_c_ends_the_download(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        env = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        env |= {
            "TAILRACE_HOME": str(tmp_path),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": f"http://127.0.0.1:{silent.getsockname()[1]}/simple",
            "PIP_DEFAULT_TIMEOUT": "300",
        }
        command = [sys.executable, "-m", "tailrace", "chat", "-q", "hi"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as chat:
            connection, _ = silent.accept()  # pip has asked and will wait for an answer that never comes
            with connection:
                chat.send_signal(signal.SIGINT)
                out, err = chat.communicate(timeout=60)
    assert (chat.returncode, out) == (130, "")
    assert err == "downloading the embedded model SmolLM2-135M (93 MB, once)\n"
    assert [path.name for path in (tmp_path / "models").iterdir()] == [".lock"]
