"""How one installs what an extra brings: the command that works where this package came from."""

from __future__ import annotations

import shlex
import sys
from urllib.parse import unquote, urlsplit

import msgspec

from tailrace.system.own_program import directory_or_root, own_pip


class _DirInfo(msgspec.Struct):
    editable: bool = False


class _DirectUrl(msgspec.Struct):
    """What pip notes of a package that came from no index."""

    url: str = ""
    dir_info: _DirInfo | None = None


def install_command(extra: str) -> str:
    """A package from an index is named; a checkout or a file is installed again from where it lies (M156)."""
    pip, source = own_pip(sys.executable, directory_or_root()), _source()
    path = unquote(urlsplit(source.url).path)
    if source.dir_info is not None and path:
        editable = "-e " if source.dir_info.editable else ""
        return f"{pip} install {editable}{shlex.quote(f'{path}[{extra}]')}"
    target = f"tailrace[{extra}] @ {source.url}" if source.url else f"tailrace[{extra}]"
    return f"{pip} install {shlex.quote(target)}"


def _source() -> _DirectUrl:
    from importlib.metadata import PackageNotFoundError, distribution  # every command imports this module; few ask it

    try:
        noted = distribution("tailrace").read_text("direct_url.json")
        return msgspec.json.decode(noted or "{}", type=_DirectUrl)
    except (PackageNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return _DirectUrl()
