"""Files that tools give: what Meta takes, as what, and what it does not."""

from __future__ import annotations

import pytest
from proof.platforms.whatsapp import FakeWhatsApp

from integrations.whatsapp.test_delivery import asked, number
from tailrace.delivery.port import AnyReply, Sent, Upload
from tailrace.testing.clock import driven


def uploaded(name: str, media_type: str, content: bytes) -> tuple[AnyReply, list[tuple[str, str, bytes]]]:
    """The reply to the upload of this file, and what the person then has."""

    @driven
    async def upload() -> tuple[AnyReply, list[tuple[str, str, bytes]]]:
        async with FakeWhatsApp() as whatsapp, number(whatsapp) as platform:
            ada, place = asked(whatsapp)
            return await platform.perform(place, Upload("key", name, media_type, content)), ada.files

    return upload()


@pytest.mark.parametrize(
    ("name", "media_type", "content", "kind"),
    [
        ("plot.png", "image/png", b"\x89PNG", "image"),
        ("report.pdf", "application/pdf", b"%PDF", "document"),
        ("data.json", "application/json", b"{}", "document"),
        ("table.csv", "text/csv; charset=utf-8", "ä,b\n".encode(), "document"),
        ("notes.md", "application/octet-stream", b"# Notes", "document"),
    ],
)
def test_what_meta_takes(name: str, media_type: str, content: bytes, kind: str) -> None:
    reply, files = uploaded(name, media_type, content)
    assert isinstance(reply, Sent)
    assert files == [(kind, "" if kind == "image" else name, content)]
