"""Files that people send: what the model reads of them, and what it is told of the others."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import cast

from gateway.fake_gateways import asked_of_model, town
from tailrace.delivery.port import Attachment
from tailrace.testing.clock import driven
from tailrace.testing.provider import reply


@driven
async def test_images_go_to_the_model_and_text_files_as_text(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Seen.")) as here:
        here.platform.files = {"i": b"\x89PNG", "t": b"x = 1\n", "b": b"\xff\xfe\x00"}
        await here.write(
            "What is this?",
            attachments=[
                Attachment("i", "a.png", "image/png"),
                Attachment("t", "a.py", "text/x-python"),
                Attachment("b", "a.bin", "application/octet-stream"),
                Attachment("gone", "b.txt", "text/plain"),
                Attachment("t", "big.txt", "text/plain", 300_000),
                Attachment("i", "big.png", "image/png", 11 << 20),
            ],
        )
        await asyncio.sleep(20)
        said = json.dumps(asked_of_model(here)[-1]["content"])
        assert base64.b64encode(b"\x89PNG").decode() in said
        assert "x = 1" in said
        assert "only images and text files" in said
        assert "big.txt (text/plain); a text of more than 256 KiB is not read" in said
        assert "big.png (image/png); an image of more than 10 MiB is not read" in said
        assert "could not be read" in said
        assert here.chat.texts == ("Seen.",)


@driven
async def test_text_files_of_windows_are_read(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Seen.")) as here:
        here.platform.files = {
            "wide": "größe".encode("utf-16"),
            "page": "größe".encode("cp1252"),
            "bin": b"\xe4\0\0\xf6",
        }
        await here.write(
            "What is this?",
            attachments=[
                Attachment("wide", "a.txt", "text/plain"),
                Attachment("page", "b.csv", "application/vnd.ms-excel"),
                Attachment("bin", "c.txt", "text/plain"),
                Attachment("page", "d", "application/octet-stream"),
            ],
        )
        await asyncio.sleep(20)
        content = cast("list[dict[str, str]]", asked_of_model(here)[-1]["content"])
        assert [part["text"].partition("]")[2].strip("`\n") for part in content[1:]] == ["größe", "größe", "", ""]
