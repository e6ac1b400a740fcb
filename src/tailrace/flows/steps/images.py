"""Images for a model: from base64, from a file below the working directory, or by address. Read once, size-capped."""

from __future__ import annotations

import asyncio
import base64
import binascii
from pathlib import Path
from typing import Final

import msgspec

from tailrace.flows.steps.base import StepError
from tailrace.messages import Image
from tailrace.wire.client_request import InvalidRequest, image_url

MAX_IMAGE_BYTES: Final = 20 * 1024 * 1024
_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


class ImageParam(msgspec.Struct, forbid_unknown_fields=True):
    """Exactly one of `data` (base64, or a data: address), `file` and `url`. Without `media_type` it is looked at."""

    data: str = ""
    file: str = ""
    url: str = ""
    media_type: str = ""
    detail: str = ""
    type: str = "image"


async def resolve(image: ImageParam, directory: Path, max_bytes: int = MAX_IMAGE_BYTES) -> Image:
    """Raises `StepError` for one that is not there, too large, or outside the directory (J125)."""
    given = [name for name in ("data", "file", "url") if getattr(image, name)]
    if len(given) != 1:
        raise StepError("an image has exactly one of data, file and url", code="image")
    if image.url.startswith(("http://", "https://")):
        return Image(url=image.url, detail=image.detail)
    try:
        image_url(image.url or (image.data if image.data.startswith("data:") else "data:image/"))
    except InvalidRequest as exc:
        raise StepError(str(exc), code="image") from exc
    max_bytes = min(max_bytes, MAX_IMAGE_BYTES)
    if image.file:
        raw = await asyncio.to_thread(_read, directory, image.file, max_bytes)
        return _image(raw, image, max_bytes)
    text = image.data or image.url
    media_type = image.media_type
    if text.startswith("data:"):
        head, comma, text = text.partition(",")
        if not comma or not head.endswith(";base64"):
            raise StepError("expected a data: address with ;base64", code="image")
        media_type = media_type or head[5:].removesuffix(";base64")
    if len(text) * 3 // 4 > max_bytes + 3:
        raise StepError(f"an image is larger than {max_bytes} bytes", code="image")
    try:
        raw = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as exc:
        raise StepError("an image's data is not base64", code="image") from exc
    return _image(raw, msgspec.structs.replace(image, media_type=media_type), max_bytes)


def _image(raw: bytes, image: ImageParam, max_bytes: int) -> Image:
    if len(raw) > max_bytes:
        raise StepError(f"an image is larger than {max_bytes} bytes", code="image")
    media_type = image.media_type or media_type_of(raw)
    if not media_type:
        raise StepError("an image is neither PNG, JPEG, GIF nor WebP; name its media_type", code="image")
    return Image(data=base64.b64encode(raw).decode(), media_type=media_type, detail=image.detail)


def media_type_of(raw: bytes) -> str:
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return "image/webp"
    return next((name for magic, name in _MAGIC if raw.startswith(magic)), "")


def _read(directory: Path, name: str, max_bytes: int) -> bytes:
    root = directory.resolve()
    try:
        path = (root / name).resolve(strict=True)
        if not path.is_relative_to(root):
            raise StepError(f"{name} is outside the working directory", code="image")
        with path.open("rb") as file:
            return file.read(max_bytes + 1)
    except OSError as exc:
        raise StepError(f"{name} cannot be read: {exc.strerror}", code="image") from exc
