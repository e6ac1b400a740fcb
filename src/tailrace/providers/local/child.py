"""The child process that holds the embedded model: llama.cpp's HTTP server on a unix socket. Gets its settings as one
line of JSON on stdin, so that the key is in no argument list; answers with one line on stdout; serves until stdin ends,
which happens when the parent closes it or dies in any way. Knows nothing of the rest of the package."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec

PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Settings(msgspec.Struct, frozen=True):
    """What the parent decides. `socket` lies alone in a private directory, which goes when the server goes."""

    model_path: str
    model_name: str
    socket: str
    key: str
    parent: int  # the process to die with
    threads: int
    context_tokens: int
    slots: int
    answer_tokens: int  # where the request sets no limit; -1: none


class Report(msgspec.Struct, frozen=True):
    """The one line that the child writes to its parent."""

    state: Literal["ready", "no_engine", "not_loaded"]
    detail: str = ""


def main() -> None:
    reports = os.dup(1)  # whatever llama.cpp prints joins the log; the parent's pipe carries the report alone
    os.dup2(2, 1)
    _die_with_parent()
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=Settings)

    def leave(*_: object) -> NoReturn:
        shutil.rmtree(Path(settings.socket).parent, ignore_errors=True)  # a parent that was killed cannot
        os._exit(0)  # the server's own destructor would wait for answers that no client reads

    if os.getppid() != settings.parent:  # it died before the kernel was asked to watch it
        leave()
    os.umask(0o077)
    report, server = _load(settings)
    signal.signal(signal.SIGTERM, leave)  # a dying parent sends this and ends stdin, in any order
    os.write(reports, msgspec.json.encode(report) + b"\n")
    if server is None:
        shutil.rmtree(Path(settings.socket).parent, ignore_errors=True)
        return  # an orderly end writes what llama.cpp's own thread still holds of its log
    sys.stdin.buffer.read()
    leave()


def _load(settings: Settings) -> tuple[Report, Any]:
    # Spinning workers starve every process, themselves included, as soon as the machine has anything else to do.
    # Read by OpenMP when the engine is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        import xllamacpp
    except ImportError as exc:
        return Report("no_engine", str(exc)), None
    params = xllamacpp.CommonParams()
    params.model.path = settings.model_path
    params.model_alias = {settings.model_name}
    params.hostnames = [settings.socket]
    params.api_keys = [settings.key]
    params.ui = False
    params.endpoint_slots = False  # it would show one caller another's prompt
    params.cpuparams.n_threads = settings.threads
    params.cpuparams_batch.n_threads = settings.threads
    params.n_ctx = settings.context_tokens
    params.n_predict = settings.answer_tokens
    params.n_parallel = settings.slots
    params.kv_unified = True  # the slots share the context instead of having a fixed part each
    params.n_batch = 64  # tokens of a prompt per step: between steps a cancelled request is dropped
    params.cache_ram_mib = 256  # the prompts of past conversations; the engine's default is 8 GiB
    params.verbosity = 2  # warnings and errors
    try:
        return Report("ready"), xllamacpp.Server(params)
    except RuntimeError as exc:
        return Report("not_loaded", str(exc)), None


def _die_with_parent() -> None:
    """Covers the time while the engine loads and stdin is not read: the kernel ends this process with its parent."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    main()
