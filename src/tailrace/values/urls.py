"""Addresses as they may be shown."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit


def without_credentials(url: str) -> str:
    """The address as it may be shown."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "…"
    _, at, host = parts.netloc.rpartition("@")
    if "@" in parts.path + parts.query + parts.fragment:  # a password with a "/", "?" or "#" that is not encoded
        return f"{parts.scheme}://…"
    if not (at or parts.query or parts.fragment):
        return url
    return urlunsplit(
        (parts.scheme, f"…@{host}" if at else host, parts.path, "…" if parts.query or parts.fragment else "", "")
    )
