"""Tests read one authority instead of the machine's, which what has to be fetched for them still gets to see."""

from __future__ import annotations

import os
import ssl

import pytest

from certificates import NOBODYS, machines_authorities


def test_a_client_reads_one_authority() -> None:
    assert ssl.create_default_context().cert_store_stats()["x509_ca"] == 1


@pytest.mark.parametrize("machines", ["/etc/authorities.pem", ""])
def test_a_fetch_sees_the_machines(machines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTS_SSL_CERT_FILE", machines)
    with machines_authorities():
        assert os.environ.get("SSL_CERT_FILE", "") == machines
    assert os.environ["SSL_CERT_FILE"] == NOBODYS
