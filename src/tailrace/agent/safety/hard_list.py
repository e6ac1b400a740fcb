"""The short list of actions that are refused always, in every mode: what destroys the machine or a whole home.

Pure. Works on each program start of a line, and on each start that may stand in the arguments of a program that starts
others: those are not read by their options, so that no option hides what follows it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from tailrace.agent.safety.places import Places
from tailrace.agent.safety.words import Redirect, Word, decode_ansi_c, names

SHELLS = names(
    "sh bash zsh dash ksh fish ash csh tcsh rbash mksh yash source . eval sudo doas su pkexec runuser at batch"
)
# Programs whose arguments hold another program or a line for a shell.
STARTERS = SHELLS | names(
    "env nohup nice ionice time timeout gtimeout stdbuf setsid command builtin exec coproc busybox toybox xargs watch"
    " strace ltrace chrt taskset caffeinate flock script prlimit numactl setarch unbuffer faketime tini dumb-init sem"
    " torsocks proxychains proxychains4 rlwrap npx uvx bunx pipx poetry uv pdm hatch rye pixi conda mamba micromamba"
    " bundle direnv mise asdf npm pnpm yarn nix nix-shell tmux screen dotenv gosu su-exec chroot nsenter unshare"
    " setpriv capsh bwrap firejail systemd-run machinectl proot fakeroot run0 parallel daemonize start-stop-daemon"
    " dbus-run-session xvfb-run trap alias find fd fdfind entr watchexec"
)
_POWER = frozenset({"shutdown", "reboot", "halt", "poweroff"})
_POWER_VERBS = frozenset({"reboot", "poweroff", "halt", "kexec", "soft-reboot"})
_DISK_TOOLS = names(
    "tee shred wipefs fdisk sfdisk gdisk sgdisk cfdisk parted mkswap hdparm blkdiscard srm wipe truncate"
)
_FIND_FILTERS = re.compile(
    r"-(i?name|i?path|i?regex|i?wholename|[acm]?newer\S*|[acm](time|min)|size|user|group|empty|perm|links|inum|samefile)"
)
_DELETES = frozenset({"-delete", "rm", "unlink", "shred", "mv", "chmod", "chown", "chgrp"})
_OFF = "turns the machine off"
_DESTROYS = "deletes, moves or opens up the system or a whole home directory"
_PRINTS = re.compile(r"\b(?:echo|printf)\b")
MAX_SUFFIXES = 30


def hard_reason(words: Sequence[Word], places: Places) -> str:
    """Why this program start is refused always; "" where it is not."""
    name = _name(words[0])
    args = [word.text for word in words[1:]]
    operands = _operands(args)
    if name.startswith(("mkfs", "mke2fs")):
        return "makes a file system"
    if name in _POWER or (name in ("init", "telinit") and args[:1] in (["0"], ["6"])):
        return _OFF
    if name in ("systemctl", "loginctl") and not _POWER_VERBS.isdisjoint(args):
        return _OFF
    if name == "kill" and ("-1" in args[1:] or args == ["-1"]):
        return "ends every process"
    if name in ("cp", "mv", "dd", "install") or name in _DISK_TOOLS:
        return _disk_reason(name, args, operands, places) or (_moved_reason(args, places) if name == "mv" else "")
    if name == "rm" and any("--no-preserve-root".startswith(arg) for arg in args if len(arg) > 4):
        return _DESTROYS
    if name in ("rm", "chmod", "chown", "chgrp") and _is_recursive(args):
        return _DESTROYS if any(map(places.whole_system, operands)) else ""
    return _find_reason(args, places) if name == "find" else ""


def suffix_starts(words: Sequence[Word]) -> list[Sequence[Word]]:
    """The program starts that may stand in the arguments of a program that starts others."""
    if _name(words[0]) not in STARTERS:
        return []
    return [words[at:] for at in range(1, min(len(words), MAX_SUFFIXES)) if not words[at].text.startswith("-")]


def argument_lines(words: Sequence[Word]) -> list[str]:
    """The shell lines that may stand in the arguments of a program that starts others."""
    if _name(words[0]) not in STARTERS:
        return []
    values = [re.sub(r"^--?\w[\w-]*=|^\w+=(?=.*\s)", "", word.text) for word in words[1:MAX_SUFFIXES]]
    return [value for value in values if re.search(r"[\s;&|$`]", value)]


def feeds_a_shell(words: Sequence[Word]) -> bool:
    return any(_name(word) in SHELLS for word in words[:MAX_SUFFIXES])


def printed_text(words: Sequence[Word]) -> str:
    """What `echo` or `printf` prints, with each `%s` filled in; "" for another program."""
    start = " ".join([word.text for word in words[:MAX_SUFFIXES]])
    name = found[0] if (found := _PRINTS.search(start)) else ""
    if not name:
        return ""
    texts = [word.text for word in words if _name(word) != name and not re.fullmatch(r"-[neE]+|--", word.text)]
    if name == "printf" and texts and "%" in texts[0]:
        values = iter(texts[1:])
        filled = re.sub(r"%[-\d]*[bsq]", lambda _: next(values, ""), texts[0])
        texts = [filled, *values]
    return decode_ansi_c("\n".join(texts) if name == "printf" else " ".join(texts))


def redirect_hard_reason(redirect: Redirect, places: Places) -> str:
    path = redirect.target.text
    if ">" not in redirect.operator:
        return ""
    if path.startswith("/proc/sysrq"):
        return _OFF
    return f"writes to the device {path}" if places.is_disk(path) else ""


def _name(word: Word) -> str:
    return posixpath.basename(word.text).removesuffix(".exe")


def _operands(args: Sequence[str]) -> list[str]:
    end = args.index("--") if "--" in args else len(args)
    return [arg for arg in args[:end] if not arg.startswith("-")] + list(args[end + 1 :])


def _is_recursive(args: Sequence[str]) -> bool:
    return any(re.match(r"-[a-zA-Z]*[rR]", arg) or (len(arg) > 4 and "--recursive".startswith(arg)) for arg in args)


def _disk_reason(name: str, args: Sequence[str], operands: Sequence[str], places: Places) -> str:
    """cp, mv and dd only read the disks that they name first."""
    if name == "dd":
        written = [arg[3:] for arg in args if arg.startswith("of=")]
    elif name in _DISK_TOOLS:
        written = [] if set(args) & {"-l", "--list"} else list(operands)
    else:
        written = list(operands[-1:])
    disk = next(filter(places.is_disk, written), "")
    return f"writes to the device {disk}" if disk else ""


def _moved_reason(args: Sequence[str], places: Places) -> str:
    target = next((at for at, arg in enumerate(args) if arg in ("-t", "--target-directory")), None)
    sources = _operands(args)[:-1] if target is None else _operands([*args[:target], *args[target + 2 :]])
    return _DESTROYS if any(map(places.whole_system, sources)) else ""


def _find_reason(args: Sequence[str], places: Places) -> str:
    """For a `find` that deletes all that it finds below the root or a home."""
    roots = args[: next((at for at, arg in enumerate(args) if arg.startswith("-")), len(args))]
    whole = any(map(places.whole_system, roots)) and not any(map(_FIND_FILTERS.match, args))
    return _DESTROYS if whole and any(posixpath.basename(arg) in _DELETES for arg in args) else ""
