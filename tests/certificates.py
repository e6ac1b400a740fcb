"""Which file of authorities the tests and the processes they start read: one with a single authority.

No test speaks TLS to the world. A client that reads the machine's authorities takes 50 ms for it, and each process that
a test starts has two of them: with `nobodys_authority.pem` they read one, whose key was thrown away. The machine's
directory of authorities stays as it is: OpenSSL reads of it what a connection asks for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODYS = str(Path(__file__).with_name("nobodys_authority.pem"))
_MACHINES = "TESTS_SSL_CERT_FILE"  # the workers of a run inherit what its first process has set


def read_one_authority() -> None:
    os.environ.setdefault(_MACHINES, os.environ.get("SSL_CERT_FILE", ""))
    os.environ["SSL_CERT_FILE"] = NOBODYS
    os.environ.pop("NODE_EXTRA_CA_CERTS", None)


@contextmanager
def machines_authorities() -> Iterator[None]:
    """For what has to be fetched before a test can run."""
    with pytest.MonkeyPatch.context() as patch:
        if file := os.environ.get(_MACHINES):
            patch.setenv("SSL_CERT_FILE", file)
        else:
            patch.delenv("SSL_CERT_FILE")
        yield
