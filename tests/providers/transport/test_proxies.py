"""Proxies and TLS over loopback: a real tunnel, a real certificate."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from providers import faulty_calls
from providers.transport.raw_servers import OK, post, raw_server, read_all, read_request
from tailrace.config.sections import TransportSettings
from tailrace.errors import ConfigError, Rejected, Unavailable
from tailrace.providers.transport.http1_transport import open_transport
from tailrace.providers.transport.proxies import Proxy, ProxyRules

HI = OK + b"content-length: 2\r\n\r\nhi"


# ── which proxy ──────────────────────────────────────────────────────────────────────────────────────────────


PROXIES = {"HTTPS_PROXY": "http://secure:1", "http_proxy": "plain:2"}


@pytest.mark.parametrize(
    ("environ", "url", "proxy"),
    [
        (PROXIES, ("https", "api.example", 443), Proxy("http", "secure", 1)),
        (PROXIES, ("http", "api.example", 80), Proxy("http", "plain", 2)),
        (PROXIES, ("https", "localhost", 443), None),
        (PROXIES, ("https", "127.0.0.2", 443), None),
        (PROXIES, ("https", "::1", 443), None),
        ({"ALL_PROXY": "https://all"}, ("http", "api.example", 80), Proxy("https", "all", 443)),
        ({**PROXIES, "NO_PROXY": "*"}, ("https", "api.example", 443), None),
        ({**PROXIES, "NO_PROXY": "x, example"}, ("https", "api.example", 443), None),
        ({**PROXIES, "NO_PROXY": ".api.example"}, ("https", "API.example", 443), None),
        ({**PROXIES, "NO_PROXY": "pi.example"}, ("https", "api.example", 443), Proxy("http", "secure", 1)),
        ({**PROXIES, "NO_PROXY": "api.example:8443"}, ("https", "api.example", 443), Proxy("http", "secure", 1)),
        ({**PROXIES, "NO_PROXY": "api.example:443"}, ("https", "api.example", 443), None),
        ({**PROXIES, "NO_PROXY": "10.0.0.0/8"}, ("https", "10.9.8.7", 443), None),
        ({**PROXIES, "NO_PROXY": "10.0.0.0/8"}, ("https", "11.9.8.7", 443), Proxy("http", "secure", 1)),
        ({}, ("https", "api.example", 443), None),
    ],
)
def test_which_proxy(environ: dict[str, str], url: tuple[str, str, int], proxy: Proxy | None) -> None:
    assert ProxyRules("environment", environ).proxy_for(*url) == proxy
    assert ProxyRules("none", environ).proxy_for(*url) is None


def test_a_socks_proxy_in_the_environment_is_for_other_programs() -> None:
    rules = ProxyRules("environment", {"ALL_PROXY": "socks5://proxy.example:1080"})
    assert rules.proxy_for("https", "api.example.com", 443) is None


def test_a_proxy_that_the_config_names_is_for_this_machine_too() -> None:
    rules = ProxyRules("http://user:p%40ss@proxy:3128", {"NO_PROXY": "exempt.example"})
    credentials = "Basic " + base64.b64encode(b"user:p@ss").decode()
    assert rules.proxy_for("http", "127.0.0.1", 80) == Proxy("http", "proxy", 3128, credentials)
    assert rules.proxy_for("http", "exempt.example", 80) is None


@pytest.mark.parametrize(
    "address", ["socks5://u:hunter2@proxy:1080", "http://u:hunter2@", "http://u:hunter2@proxy:99999999"]
)
def test_J114_an_address_that_is_no_proxys_is_the_users_to_change(address: str) -> None:
    with pytest.raises(ConfigError, match=r"HTTPS_PROXY: expected") as caught:
        ProxyRules("environment", {"https_proxy": address})
    assert "hunter2" not in str(caught.value)


# ── the test's own certificate and proxy ─────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a certificate for 127.0.0.1 and its key, signed by itself."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + signed.public_bytes(serialization.Encoding.PEM)
    )
    return path


@asynccontextmanager
async def secure_server(certificate: Path) -> AsyncGenerator[str, None]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                _, body = await read_request(reader)
                writer.write(OK + b"content-length: %d\r\n\r\n%b" % (len(body), body))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


class TunnelProxy:
    """Connects where it is told; answers a whole URL itself. `status` refuses."""

    def __init__(self, status: bytes = b"200 Connection established") -> None:
        self.status = status
        self.heads: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        method, target, _ = head.split(b" ", 2)
        if method != b"CONNECT":
            writer.write(HI)
            return
        if not self.status.startswith(b"2"):
            writer.write(b"HTTP/1.1 %b\r\ncontent-length: 0\r\n\r\n" % self.status)
            return
        host, _, port = target.decode().rpartition(":")
        inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 %b\r\n\r\n" % self.status)
        try:
            await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))
        finally:
            inner_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


def through(proxy: str) -> TransportSettings:
    return msgspec.structs.replace(faulty_calls.TRANSPORT, proxy=proxy.removesuffix("/v1"))


# ── over them ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_tls_with_a_certificate_that_is_trusted(certificate: Path) -> None:
    body = b"x" * 700_000
    async with (
        secure_server(certificate) as url,
        open_transport(faulty_calls.TRANSPORT, tls=ssl.create_default_context(cafile=certificate)) as transport,
    ):
        for _ in range(2):
            reply = await post(transport, url, body)
            assert await read_all(reply) == body
            reply.close()


async def test_a_certificate_that_is_not_trusted_is_rejected(certificate: Path) -> None:
    async with secure_server(certificate) as url, open_transport(faulty_calls.TRANSPORT) as transport:
        with pytest.raises(Rejected, match="certificate is not trusted") as caught:
            await post(transport, url)
    assert caught.value.code == "certificate"


async def test_a_certificate_for_another_name_is_rejected(certificate: Path) -> None:
    async with (
        secure_server(certificate) as url,
        open_transport(faulty_calls.TRANSPORT, tls=ssl.create_default_context(cafile=certificate)) as transport,
    ):
        with pytest.raises(Rejected, match="certificate is not trusted"):
            await post(transport, url.replace("127.0.0.1", "localhost"))


async def test_a_server_that_speaks_no_tls_cannot_be_connected_to() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HI)

    async with raw_server(answer) as url, open_transport(faulty_calls.TRANSPORT) as transport:
        with pytest.raises(Unavailable, match="cannot connect to") as caught:
            await post(transport, url.replace("http:", "https:"))
    assert caught.value.code == "cannot_connect"


async def test_https_goes_through_a_tunnel_that_is_used_again(certificate: Path) -> None:
    proxy = TunnelProxy()
    tls = ssl.create_default_context(cafile=certificate)
    async with secure_server(certificate) as url, raw_server(proxy) as proxy_url:
        settings = through(proxy_url.replace("://", "://user:hunter2@"))
        async with open_transport(settings, environ={}, tls=tls) as transport:
            for _ in range(2):
                reply = await transport.post(
                    url, headers={"authorization": "Bearer sk-secret"}, body=b"hello", connect_timeout_s=10
                )
                assert await read_all(reply) == b"hello"
                reply.close()
    [head] = proxy.heads
    authority = url.removeprefix("https://").removesuffix("/v1").encode()
    assert head.startswith(b"CONNECT %b HTTP/1.1\r\n" % authority)
    assert base64.b64encode(b"user:hunter2") in head
    assert b"sk-secret" not in head


async def test_a_proxy_may_itself_be_reached_by_tls(certificate: Path) -> None:
    proxy = TunnelProxy()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    tls = ssl.create_default_context(cafile=certificate)
    async with secure_server(certificate) as url:
        server = await asyncio.start_server(proxy, "127.0.0.1", 0, ssl=context)
        settings = through(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with open_transport(settings, environ={}, tls=tls) as transport:
            for body in (b"hello", b"x" * 700_000):
                reply = await post(transport, url, body)
                assert await read_all(reply) == body
                reply.close()
        server.close()
    assert len(proxy.heads) == 1


async def test_http_is_asked_of_the_proxy_by_its_whole_address() -> None:
    proxy = TunnelProxy()
    async with raw_server(proxy) as proxy_url:
        settings = through(proxy_url.replace("://", "://user:hunter2@"))
        async with open_transport(settings, environ={}) as transport:
            reply = await post(transport, "http://models.example/v1/models?a=1")
            assert await read_all(reply) == b"hi"
            reply.close()
    [head] = proxy.heads
    assert head.startswith(b"POST http://models.example/v1/models?a=1 HTTP/1.1\r\n")
    assert base64.b64encode(b"user:hunter2") in head
    assert b"\r\nhost: models.example\r\n" in head.lower()


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (b"407 Proxy Authentication Required", Rejected, "proxy_credentials"),
        (b"502 Bad Gateway", Unavailable, "cannot_connect"),
    ],
)
async def test_J114_a_proxy_that_refuses_is_named_without_its_password(
    status: bytes, error: type[Exception], code: str
) -> None:
    async with raw_server(TunnelProxy(status)) as proxy_url:
        settings = through(proxy_url.replace("://", "://user:hunter2@"))
        async with open_transport(settings, environ={}) as transport:
            with pytest.raises(error, match="proxy") as caught:
                await post(transport, "https://models.example/v1")
    assert getattr(caught.value, "code", "") == code
    assert "hunter2" not in str(caught.value)


async def test_a_proxy_of_the_environment_is_not_used_for_this_machine() -> None:
    proxy = TunnelProxy()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(HI)

    settings = msgspec.structs.replace(faulty_calls.TRANSPORT, proxy="environment")
    async with raw_server(proxy) as proxy_url, raw_server(answer) as url:
        environ = {"HTTP_PROXY": proxy_url.removesuffix("/v1")}
        async with open_transport(settings, environ=environ) as transport:
            reply = await post(transport, url)
            assert await read_all(reply) == b"hi"
            reply.close()
            reply = await post(transport, "http://models.example/v1")
            assert await read_all(reply) == b"hi"
            reply.close()
    assert len(proxy.heads) == 1
