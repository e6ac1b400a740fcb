"""What single programs can do, as rules: name and arguments in, assessment out.

Pure data and small functions. `danger` walks a command line and asks here about each program that it would start.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from tailrace.agent.safety.shell import Word

Verdict = Literal["allow", "ask", "refuse"]
_RANK: dict[Verdict, int] = {"allow": 0, "ask": 1, "refuse": 2}


class Assessment(NamedTuple):
    verdict: Verdict
    reason: str = ""


HARMLESS = Assessment("allow")
Rule = Callable[[list[str], Sequence[Word]], Assessment]

_DISK = re.compile(r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|dm-|mapper/|loop|md)\w*|/dev/(mem|kmem|port)")
_SYSTEM_DIRS = re.compile(
    r"/|/(bin|boot|dev|etc|home|lib|lib32|lib64|opt|proc|root|run|sbin|srv|sys|usr|var|System|Library|Users|Applications)"
)
_SENSITIVE_PATH = re.compile(
    r"(/(etc|boot|bin|sbin|lib|lib64|usr|var|dev|sys|proc|root|System|Library)(/|$))"
    r"|(^|/)(\.ssh|\.gnupg|\.aws|\.kube|\.docker|\.config/systemd|\.git/hooks)(/|$)"
    r"|(^|/)\.(bashrc|bash_profile|bash_login|profile|zshrc|zprofile|zshenv|netrc|npmrc|pypirc|git-credentials|pgpass)$"
    r"|(^|/)(authorized_keys|crontab|sudoers|id_rsa|id_ed25519)$"
)
_HARMLESS_DEVICES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/zero", "/dev/fd"})
_SENDS = re.compile(
    r"(^| )(-X|--request)[ =]?(POST|PUT|DELETE|PATCH)\b|(^| )(-d|--data\S*|-F|--form|-T|--upload-file|--post-\S+)\b"
)
_SQL = re.compile(
    r"\b(drop\s+(table|database|schema|index|view|user|role)|truncate\s+(table\s+)?\w|delete\s+from\s+[\w.\"`]+\s*(;|$|[\"'])"
    r"|alter\s+table\s+\S+\s+drop|grant\s+all|shutdown)",
    re.IGNORECASE,
)


def graver(a: Assessment, b: Assessment) -> Assessment:
    """The one that counts more; the first where they are equal."""
    return b if _RANK[b.verdict] > _RANK[a.verdict] else a


def judge_target(path: str) -> Assessment:
    """What writing to this path would do."""
    if path in _HARMLESS_DEVICES:
        return HARMLESS
    if _DISK.match(path):
        return Assessment("refuse", f"writes to the device {path}")
    return Assessment("ask", f"writes to {path}") if _sensitive(path) else HARMLESS


def _sensitive(path: str) -> bool:
    if path in _HARMLESS_DEVICES or path.startswith(("/tmp/", "/var/tmp/", "/dev/fd/")):  # noqa: S108 - a scratch directory
        return False
    return bool(_SENSITIVE_PATH.search(path))


def _whole_system(path: str) -> bool:
    """The root, a directory directly below it that the system lives in, or a user's whole home."""
    if path in ("~", "~/", "~/*", "/*", "/.*", "~root"):
        return True
    plain = posixpath.normpath(re.sub(r"/+", "/", path.rstrip("*") or path))
    return bool(_SYSTEM_DIRS.fullmatch(plain)) or bool(re.fullmatch(r"/(home|Users)/[^/]+", plain))


def _flags(args: list[str]) -> set[str]:
    """Single letters of bundled short options, and long options by name."""
    found: set[str] = set()
    for arg in args:
        if arg.startswith("--"):
            found.add(arg.split("=")[0])
        elif arg.startswith("-"):
            found |= set(arg[1:])
    return found


def _operands(args: list[str]) -> list[str]:
    if "--" in args:
        cut = args.index("--")
        return [a for a in args[:cut] if not a.startswith("-")] + args[cut + 1 :]
    return [a for a in args if not a.startswith("-")]


def _rm(args: list[str], words: Sequence[Word]) -> Assessment:
    flags, targets = _flags(args), _operands(args)
    recursive = bool(flags & {"r", "R", "--recursive"})
    if "--no-preserve-root" in flags or (recursive and any(map(_whole_system, targets))):
        return Assessment("refuse", "deletes the system or a whole home directory")
    if recursive:
        return Assessment("ask", "deletes directories with all they hold")
    if any(w.globbed or w.dynamic for w in words):
        return Assessment("ask", "deletes files that are known only when it runs")
    if any(t.startswith(("/", "~")) or ".." in t.split("/") for t in targets):
        return Assessment("ask", "deletes files outside the working directory")
    return Assessment("ask", "deletes without asking") if "f" in flags else HARMLESS


def _recursive_rights(args: list[str], _words: Sequence[Word]) -> Assessment:
    recursive = bool(
        _flags([a for a in args if not re.fullmatch(r"[-+=]?[rwxXst,ugoa+=-]*", a)]) & {"R", "--recursive"}
    )
    recursive = recursive or "-R" in args or "--recursive" in args
    targets = _operands(args)[1:]
    if recursive and any(map(_whole_system, targets)):
        return Assessment("refuse", "changes the rights of the whole system")
    if recursive or any(_sensitive(t) for t in targets):
        return Assessment("ask", "changes rights or owners beyond one file")
    return HARMLESS


def _chmod(args: list[str], words: Sequence[Word]) -> Assessment:
    modes = [a for a in args if re.fullmatch(r"[0-7]{3,4}|[ugoa]*[-+=][rwxXst]+(,[ugoa]*[-+=][rwxXst]+)*", a)]
    open_to_all = any(re.fullmatch(r"[0-7]?[0-7][0-7][2367]|.*[oa]\+[rx]*w.*|\+[rx]*w.*", m) for m in modes)
    set_id = any(re.fullmatch(r"[4267][0-7]{3}|[ug]*\+[rwx]*s.*", m) for m in modes)
    worst = _recursive_rights(args, words)
    if open_to_all or set_id:
        return graver(Assessment("ask", "opens a file to everyone or lets it run with other rights"), worst)
    return worst


def _dd(args: list[str], _words: Sequence[Word]) -> Assessment:
    target = next((a[3:] for a in args if a.startswith("of=")), "")
    if _DISK.match(target):
        return Assessment("refuse", f"overwrites the device {target}")
    return Assessment("ask", f"overwrites {target}") if target and _sensitive(target) else HARMLESS


def _git(args: list[str], _words: Sequence[Word]) -> Assessment:
    rest = args[:]
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in ("-C", "-c", "--git-dir", "--work-tree") and rest:
            rest.pop(0)
    verb, flags = (rest[0] if rest else ""), _flags(rest[1:])
    if verb == "push" and (
        flags & {"f", "--force", "--mirror", "--delete", "d"} or any(a.startswith("+") for a in rest)
    ):
        return Assessment("ask", "rewrites or deletes what others may have")
    if verb == "reset" and "--hard" in flags:
        return Assessment("ask", "throws away changes")
    if verb == "clean" and flags & {"f", "--force"} and not flags & {"n", "--dry-run"}:
        return Assessment("ask", "deletes files that git does not know")
    if verb in ("filter-branch", "filter-repo") or (verb == "branch" and "D" in flags):
        return Assessment("ask", "throws away commits")
    if verb in ("checkout", "restore") and (flags & {"f", "--force"} or "." in rest[1:]):
        return Assessment("ask", "throws away changes")
    if verb == "stash" and rest[1:2] in (["clear"], ["drop"]):
        return Assessment("ask", "throws away changes")
    return HARMLESS


def _kill(args: list[str], _words: Sequence[Word]) -> Assessment:
    if "-1" in args[1:] or (args[:1] == ["--"] and "-1" in args) or (len(args) == 1 and args[0] == "-1"):
        return Assessment("refuse", "ends every process")
    return Assessment("ask", "ends processes") if args and args[0] not in ("-0", "-l", "-L", "--list") else HARMLESS


def _services(args: list[str], _words: Sequence[Word]) -> Assessment:
    verbs = {"stop", "disable", "mask", "kill", "restart", "isolate", "start", "enable", "unload"}
    if {"reboot", "poweroff", "halt"} & set(args):
        return Assessment("refuse", "turns the machine off")
    return Assessment("ask", "changes what the machine runs") if verbs & set(args) else HARMLESS


def _crontab(args: list[str], _words: Sequence[Word]) -> Assessment:
    return HARMLESS if args and args[0] == "-l" else Assessment("ask", "changes what runs later")


def _copy_to(args: list[str], _words: Sequence[Word]) -> Assessment:
    return judge_target(_split_target(args)[1])


def _move(args: list[str], words: Sequence[Word]) -> Assessment:
    """A move deletes its sources."""
    sources, target = _split_target(args)
    if any(map(_whole_system, sources)):
        return Assessment("refuse", "moves the system or a whole home directory away")
    lost = next((path for path in sources if _sensitive(path) or target == "/dev/null"), None)
    return graver(Assessment("ask", f"moves {lost} away") if lost else HARMLESS, _copy_to(args, words))


def _split_target(args: list[str]) -> tuple[list[str], str]:
    """The sources and the target of a program that is called like cp."""
    operands = _operands(args)
    for arg, following in pairwise([*args, ""]):
        option, _, value = arg.partition("=")
        if option in ("-t", "--target-directory"):
            target = value or following
            return [path for path in operands if path != target], target
    return operands[:-1], operands[-1] if operands else ""


def _tee(args: list[str], _words: Sequence[Word]) -> Assessment:
    worst = HARMLESS
    for target in _operands(args):
        worst = graver(worst, judge_target(target))
    return worst


def _sed(args: list[str], _words: Sequence[Word]) -> Assessment:
    edits = any(re.fullmatch(r"-[a-zA-Z]*i.*|--in-place.*", a) for a in args)
    if edits and any(_sensitive(a) for a in _operands(args)):
        return Assessment("ask", "edits system files")
    runs = any(
        re.search(r"(^|[;{}\d$/])\s*e(\s|$)|/[a-z]*e[a-z]*$", a) for a in _operands(args)[:1] if a.startswith("s")
    )
    return Assessment("ask", "sed that starts programs") if runs else HARMLESS


def _fetch(args: list[str], _words: Sequence[Word]) -> Assessment:
    joined = " ".join(args)
    if _SENDS.search(joined):
        return Assessment("ask", "sends data elsewhere")
    targets = [args[i + 1] for i, a in enumerate(args[:-1]) if a in ("-o", "--output", "-O", "--output-document")]
    return Assessment("ask", "writes to a system file") if any(map(_sensitive, targets)) else HARMLESS


def _sql(args: list[str], _words: Sequence[Word]) -> Assessment:
    text = " ".join(args)
    if _SQL.search(text) or re.search(r"\b(flushall|flushdb|dropDatabase|shutdown)\b", text, re.IGNORECASE):
        return Assessment("ask", "deletes data")
    return HARMLESS


def _power(_args: list[str], _words: Sequence[Word]) -> Assessment:
    return Assessment("refuse", "turns the machine off")


def _init(args: list[str], _words: Sequence[Word]) -> Assessment:
    return Assessment("refuse", "turns the machine off") if args[:1] in (["0"], ["6"]) else HARMLESS


def _device(args: list[str], _words: Sequence[Word]) -> Assessment:
    if args[:1] in (["-l"], ["--list"], ["-h"], ["--help"]):
        return HARMLESS
    return Assessment("refuse" if any(map(_DISK.match, args)) else "ask", "changes a disk")


def _with_operands(args: list[str], _words: Sequence[Word]) -> Assessment:
    """Programs that only report unless they are given something to change."""
    return Assessment("ask", "changes the system's devices") if len(_operands(args)) > 1 else HARMLESS


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────

# Programs that always ask, by what they do.
_ASK: dict[str, tuple[str, ...]] = {
    "ends processes": ("pkill", "killall", "skill"),
    "changes what runs later": ("at", "batch"),
    "deletes beyond recovery": ("srm", "shred"),
    "runs on another machine": ("ssh", "mosh", "rsh"),
    "sends files elsewhere": ("scp", "sftp", "ftp"),
    "opens a raw connection": ("nc", "ncat", "netcat", "socat", "telnet"),
    "changes the network": ("iptables", "ip6tables", "nft", "ufw", "firewall-cmd"),
    "mounts or unmounts a file system": ("umount", "losetup", "swapoff"),
    "changes users or rights": ("useradd", "userdel", "usermod", "adduser", "deluser", "groupdel", "passwd", "visudo"),
    "changes the kernel": ("insmod", "rmmod", "modprobe", "kexec"),
}
# Programs that ask when one of their arguments matches.
_CHANGES_CONTAINERS = (
    "rm|rmi|prune|kill|stop|down|delete|drain|destroy|apply|exec|uninstall|--privileged|--pid=host|/:/.*"
)
_ASK_ON: dict[str, tuple[str, tuple[str, ...]]] = {
    "remove|purge|autoremove|erase|uninstall|publish|unpublish|upload|-R": (
        "removes or publishes packages",
        ("apt", "apt-get", "yum", "dnf", "pacman", "brew", "npm", "pip", "pip3", "cargo", "snap", "dpkg", "twine"),
    ),
    _CHANGES_CONTAINERS: (
        "changes containers or infrastructure",
        ("docker", "podman", "kubectl", "helm", "terraform", "vagrant", "docker-compose"),
    ),
    "delete|merge|close|create|edit|upload": ("changes a remote", ("gh",)),
    "delete|create|update|deploy": ("changes a cloud account", ("gcloud",)),
    r"(delete|terminate|put|create|update|remove|sync).*|rm\s*|rb\s*": ("changes a cloud account", ("aws",)),
    "-c|-cw": ("deletes the history", ("history",)),
    "-w|--write|-p|--load": ("changes the kernel", ("sysctl",)),
    r'.*(system\(|\| ").*': ("awk that starts programs", ("awk", "gawk", "mawk", "nawk")),
}
_DEVICE_TOOLS = ("wipefs", "fdisk", "sfdisk", "gdisk", "sgdisk", "cfdisk", "parted", "mkswap", "hdparm", "blkdiscard")
_RULES: dict[str, Rule] = {
    **dict.fromkeys(("rm", "rmdir", "unlink"), _rm),
    **dict.fromkeys(("chown", "chgrp", "chattr", "setfacl"), _recursive_rights),
    **dict.fromkeys(("systemctl", "service", "launchctl", "rc-service"), _services),
    **dict.fromkeys(("cp", "install", "ln", "rsync", "truncate"), _copy_to),
    **dict.fromkeys(("curl", "wget"), _fetch),
    **dict.fromkeys(("init", "telinit"), _init),
    **dict.fromkeys(("shutdown", "reboot", "halt", "poweroff"), _power),
    **dict.fromkeys(("mount", "ifconfig"), _with_operands),
    **dict.fromkeys(("psql", "mysql", "mariadb", "sqlite3", "sqlcmd", "mongosh", "mongo", "redis-cli", "duckdb"), _sql),
    **dict.fromkeys(_DEVICE_TOOLS, _device),
    "chmod": _chmod,
    "dd": _dd,
    "git": _git,
    "kill": _kill,
    "mv": _move,
    "crontab": _crontab,
    "tee": _tee,
    "sed": _sed,
}
_ASK_BY_NAME = {name: reason for reason, names in _ASK.items() for name in names}
_ASK_ON_BY_NAME = {
    name: (reason, re.compile(pattern, re.DOTALL)) for pattern, (reason, names) in _ASK_ON.items() for name in names
}


def judge_program(name: str, words: Sequence[Word], documents: Sequence[Word] = ()) -> Assessment:
    """What starting `name` with these arguments would do, and with these texts as its input."""
    args = [word.text for word in words]
    if name.startswith(("mkfs", "mke2fs")):
        return Assessment("refuse", "makes a file system")
    if reason := _ASK_BY_NAME.get(name):
        return Assessment("refuse" if any(map(_DISK.match, args)) else "ask", reason)
    if (entry := _ASK_ON_BY_NAME.get(name)) and any(map(entry[1].fullmatch, args)):
        return Assessment("ask", entry[0])
    rule = _RULES.get(name)
    if rule is _sql:
        args += [document.text for document in documents]
    return rule(args, words) if rule else HARMLESS
