"""Where the paths of a command line lead: into the working directory, out of it, to the system or to a disk.

Pure, and works on the text of paths; only `Places.resolve` may look at files, so that a link that leads out counts as
outside. `~` stands for the home directory.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from typing import NamedTuple

_DISK = re.compile(r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|dm-|mapper/|loop|md)\w*|/dev/(mem|kmem|port)")
_SYSTEM_DIRS = re.compile(
    r"/(bin|boot|dev|etc|home|lib|lib32|lib64|opt|proc|root|run|sbin|srv|sys|usr|var|System|Library|Users|Applications)?"
)
_SENSITIVE = re.compile(
    r"(^|/)(\.ssh|\.gnupg|\.aws|\.kube|\.docker|\.config/systemd|\.git)(/|$)"
    r"|(^|/)\.(bashrc|bash_profile|bash_login|profile|zshrc|zprofile|zshenv|netrc|npmrc|pypirc|git-credentials|pgpass)$"
    r"|(^|/)(authorized_keys|crontab|sudoers|id_rsa|id_ed25519)$",
    re.IGNORECASE,  # as the file systems of macOS and Windows
)
_HARMLESS_DEVICES = re.compile(r"/dev/(null|tty|std(in|out|err)|fd/\d+)")
MAX_DIRECTORIES = 8


class Places(NamedTuple):
    """The directories in which a command may run: the last one if every `cd` before it succeeded, the others if one did
    not. None is a directory that is known only when it runs. `inside` are the directories that the agent works in.
    `resolve` follows the links of a path. `read_only`: nothing may be written anywhere."""

    directories: tuple[str | None, ...] = ("",)
    inside: tuple[str, ...] = ()
    home: str = ""
    resolve: Callable[[str], str] = str
    read_only: bool = False

    def after_cd(self, target: str | None) -> Places:
        """None: known only when it runs."""
        moved = [None if target is None or at is None else joined(at, target) for at in self.directories]
        if target is not None and target.startswith(("/", "~")):
            moved = [joined("", target)]
        both = tuple(dict.fromkeys((*self.directories, *moved)))
        latest = moved[-1]
        kept = tuple(at for at in both if at != latest)
        return self._replace(directories=(*(kept if len(kept) < MAX_DIRECTORIES else (None,)), latest))

    def leads_outside(self, path: str) -> bool:
        """Whether the path may lie outside the directories that the agent works in."""
        return any(at is None or self._is_outside(joined(at, path)) for at in self._starts(path))

    def sensitive(self, path: str) -> bool:
        """Whether a write there changes how programs run later, who may log in, or what git has stored."""
        return any(_SENSITIVE.search(joined(at or "", path)) for at in self._starts(path))

    def is_disk(self, path: str) -> bool:
        return any(_DISK.match(joined(at or "", path)) for at in self._starts(path))

    def whole_system(self, path: str) -> bool:
        """The root, a directory directly below it that the system lives in, or a user's whole home. A wildcard as the
        last part means all that is in the directory before it."""
        latest = self.directories[-1]
        if latest is None and not path.startswith(("/", "~")):
            return False
        parts = joined(latest or "", path).split("/")
        while len(parts) > 1 and re.fullmatch(r"\.?[*?]+|\.?\[[^]]*\]\*?|\.\[[^]]*\]\*|\{[^}]*\}", parts[-1]):
            parts.pop()
        plain = "/".join(parts) or ("/" if path.startswith("/") or (latest or "").startswith("/") else ".")
        if plain == "." and not path.startswith(("/", "~")):
            return False
        return (
            plain == self.home
            or bool(_SYSTEM_DIRS.fullmatch(plain))
            or bool(re.fullmatch(r"~[\w.-]*|/(home|Users)/[^/]+", plain))
        )

    def _starts(self, path: str) -> tuple[str | None, ...]:
        return ("",) if path.startswith(("/", "~")) else self.directories

    def _is_outside(self, path: str) -> bool:
        if is_harmless_device(path):
            return False
        if path.startswith("~") and self.home and (path == "~" or path[1] == "/"):
            path = self.home + path[1:]
        if path.startswith(("/", "~")):
            return not (self._is_inside(path) and self._is_inside(self.resolve(path)))
        return path.split("/")[0] == ".."

    def _is_inside(self, path: str) -> bool:
        return any(path == root or path.startswith(root.rstrip("/") + "/") for root in self.inside)


def is_harmless_device(path: str) -> bool:
    return bool(_HARMLESS_DEVICES.fullmatch(path))


def joined(directory: str, path: str) -> str:
    """The path from this directory, without `.` and `..` where they can be resolved. The home directory's parent is
    taken for /home."""
    whole = path if path.startswith(("/", "~")) or not directory else f"{directory}/{path}"
    if not whole.startswith("~"):
        return re.sub("^//", "/", posixpath.normpath(whole)) if whole else "."
    home, *rest = whole.split("/")
    parts: list[str] = []
    for at, part in enumerate(rest):
        if part == ".." and not parts:
            return joined("", "/".join(("/home", *rest[at + 1 :])))
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join((home, *parts))
