"""What single programs can do, as rules: name and arguments in, assessment out.

Pure data and small functions. `danger` walks a command line and asks here about each program that it would start.
Programs that nothing is known about are let through.
"""

from __future__ import annotations

import re

from tailrace.agent.safety.rules.assessment import (
    HARMLESS,
    Assessment,
    ProgramStart,
    Rule,
    ask,
    graver,
    judge_target,
    refuse,
)
from tailrace.agent.safety.rules.code import CODE_RULES
from tailrace.agent.safety.rules.files import FILE_RULES
from tailrace.agent.safety.rules.remote import REMOTE_RULES

# Variables whose value programs start, load or look for programs in.
RISKY_VARIABLES = re.compile(
    r"LD_\w+|DYLD_\w+|BASH_ENV|ENV|PROMPT_COMMAND|PS[0-4]|SHELLOPTS|BASHOPTS|BASH_FUNC_\w*|GIT_\w*(PAGER|EDITOR"
    r"|SSH|SSH_COMMAND|ASKPASS"
    r"|EXTERNAL_DIFF|EXEC_PATH|PROXY_COMMAND|CONFIG\w*|TEMPLATE_DIR)|\w*PAGER|EDITOR|VISUAL|BROWSER|LESSOPEN"
    r"|LESSCLOSE|PYTHONSTARTUP"
    r"|PYTHONHOME|PERL5OPT|PERL5DB|RUBYOPT|NODE_OPTIONS|JAVA_TOOL_OPTIONS|SSH_ASKPASS|SUDO_ASKPASS|MAKEFLAGS"
    r"|RSYNC_RSH|CVS_RSH|TAR_OPTIONS"
)
_SQL = re.compile(
    r"\b(drop\s+(table|database|schema|index|view|user|role)|truncate\s+(table\s+)?\w"
    r"|delete\s+from\s+[\w.\"`]+\s*(;|$|[\"'])"
    r"|alter\s+table\s+\S+\s+drop|grant\s+all|shutdown|into\s+outfile|copy\b[^;]{0,300}\bto\b)|load_extension"
    r"|writefile\s*\("
    r"|(^|[\s;])\\\\?!|(^|\n|\s)\.(shell|system|output|once|save|backup|import|restore)\b|(^|[;\s])system\s",
    re.IGNORECASE,
)


def _kill(start: ProgramStart) -> Assessment:
    args = start.args
    if "-1" in args[1:] or (args[:1] == ["--"] and "-1" in args) or (len(args) == 1 and args[0] == "-1"):
        return refuse("ends every process")
    return ask("ends processes") if args and args[0] not in ("-0", "-l", "-L", "--list") else HARMLESS


def _services(start: ProgramStart) -> Assessment:
    words = set(start.args)
    if {"reboot", "poweroff", "halt", "kexec", "soft-reboot"} & words:
        return refuse("turns the machine off")
    reads = {
        "status",
        "list-units",
        "list-unit-files",
        "is-active",
        "is-enabled",
        "is-failed",
        "show",
        "cat",
        "list-timers",
        "--version",
    }
    reads |= {
        "list",
        "print",
        "list-sessions",
        "list-dependencies",
        "list-sockets",
        "--status-all",
        "--help",
        "get-default",
        "session-status",
    }
    verbs = [arg for arg in start.args if not arg.startswith("-")]
    return HARMLESS if not verbs or reads & words else ask("changes what the machine runs")


def _crontab(start: ProgramStart) -> Assessment:
    return HARMLESS if start.args[:1] == ["-l"] else ask("changes what runs later")


def _sql(start: ProgramStart) -> Assessment:
    text = " ".join([*start.args, *(document.text for document in start.documents)])
    if _SQL.search(text) or re.search(
        r"\b(flushall|flushdb|dropDatabase|shutdown|deleteMany|drop\(|config\s+set|(?<!-)eval)\b", text, re.IGNORECASE
    ):
        return ask("deletes data or starts programs")
    given = zip(start.words, start.words[1:], strict=False)
    unknown = any(
        re.fullmatch(r"-[ce]|--command|--execute|--eval", option.text) and text.dynamic for option, text in given
    )
    return ask("runs SQL that is known only when it runs") if unknown else HARMLESS


def _power(_start: ProgramStart) -> Assessment:
    return refuse("turns the machine off")


def _init(start: ProgramStart) -> Assessment:
    return refuse("turns the machine off") if start.args[:1] in (["0"], ["6"]) else HARMLESS


def _device(start: ProgramStart) -> Assessment:
    if start.args[:1] in (["-l"], ["--list"], ["-h"], ["--help"]):
        return HARMLESS
    disk = any(start.places.is_disk(arg) for arg in start.args)
    return refuse("changes a disk") if disk else ask("changes a disk")


def _with_operands(start: ProgramStart) -> Assessment:
    """Programs that only report unless they are given something to change."""
    operands = [arg for arg in start.args if not arg.startswith("-")]
    return ask("changes the system's devices") if len(operands) > 1 else HARMLESS


def _ip(start: ProgramStart) -> Assessment:
    changes = {"add", "del", "delete", "set", "flush", "change", "replace"} & set(start.args)
    return ask("changes the network") if changes else HARMLESS


def _make(start: ProgramStart) -> Assessment:
    """Its own recipes are the project's; a recipe or a shell from the command line is not."""
    runs = any(re.match(r"--eval|SHELL=|MAKEFLAGS=|\.SHELLFLAGS=|-f-$|-f$", arg) for arg in start.args)
    return (
        ask("make with a recipe or a shell of its own")
        if runs and ("-f" not in start.args or "-" in start.args)
        else HARMLESS
    )


def _editor(start: ProgramStart) -> Assessment:
    commands = [
        arg for arg in start.args if re.search(r"!|system\(|:w|\bwq?\b|call |shell|py", arg) and not arg.endswith(".py")
    ]
    runs = any(
        re.fullmatch(r"-[a-zA-Z]*[cSsWE]|--cmd|--eval|\+.*|-es?|--load|--batch|--script", arg) for arg in start.args
    )
    return ask("an editor that runs commands") if runs and commands else HARMLESS


def _hash(start: ProgramStart) -> Assessment:
    return ask("gives a program another name") if any(arg.startswith("-p") for arg in start.args) else HARMLESS


def _builtin_with_callback(start: ProgramStart) -> Assessment:
    runs = any(re.match(r"-[a-zA-Z]*[CxF]", arg) for arg in start.args)
    return ask(f"{start.name} that runs commands") if runs else HARMLESS


def _set_variables(start: ProgramStart) -> Assessment:
    """`export LD_PRELOAD=x` in quotes."""
    names = [arg.partition("=")[0] for arg in start.args if "=" in arg]
    return (
        ask("sets a variable that makes programs start others")
        if any(map(RISKY_VARIABLES.fullmatch, names))
        else HARMLESS
    )


def _printer(start: ProgramStart) -> Assessment:
    """`man -P`, `less` with a command of its own."""
    runs = any(re.match(r"-[a-zA-Z]*[PH]|--pager|--html|\+!", arg) for arg in start.args)
    return ask(f"{start.name} that starts programs") if runs else HARMLESS


def _patch(start: ProgramStart) -> Assessment:
    targets = [w for w in start.words if not w.text.startswith("-")]
    following = zip(start.words, start.words[1:], strict=False)
    targets += [value for word, value in following if word.text in ("-o", "-d", "--output", "--directory")]
    return graver(*(judge_target(target, start.places) for target in targets))


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────

# Programs that always ask, by what they do.
_ASK: dict[str, tuple[str, ...]] = {
    "ends processes": ("pkill", "killall", "skill"),
    "deletes beyond recovery": ("srm", "shred", "wipe"),
    "deletes files": ("trash", "trash-put", "gio-trash", "rimraf", "del-cli", "tmpreaper", "tmpwatch"),
    "sends files elsewhere": (
        "scp",
        "sftp",
        "ftp",
        "lftp",
        "rclone",
        "mail",
        "mutt",
        "sendmail",
        "swaks",
        "aws-s3",
        "croc",
        "wormhole",
    ),
    "opens a raw connection": ("nc", "ncat", "netcat", "socat", "telnet"),
    "changes the network": ("iptables", "ip6tables", "nft", "ufw", "firewall-cmd"),
    "mounts or unmounts a file system": ("umount", "losetup", "swapoff"),
    "changes users or rights": (
        "useradd",
        "userdel",
        "usermod",
        "adduser",
        "deluser",
        "groupdel",
        "passwd",
        "visudo",
        "chpasswd",
        "chsh",
    ),
    "changes the kernel": ("insmod", "rmmod", "modprobe", "kexec"),
    "renames or changes files by pattern": ("rename", "mmv", "ex", "ed"),
    "loads code into the shell": ("enable",),
}
# Programs that ask when one of their arguments matches.
_CHANGES_CONTAINERS = (
    "rm|rmi|prune|kill|stop|down|delete|drain|destroy|apply|exec|uninstall|push|cp|--privileged|--pid=host"
    "|(/|~|/home|/etc|/root|/var)[^:]*:/.*|-v(/|~).*|--volume=.*|--mount.*|patch|replace|scale|taint|cordon|rollout"
    "|import|-auto-approve"
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
    r"([\w-]+:)?(rm|rb|delete|destroy|remove|purge)": (
        "deletes in a cloud account",
        ("gsutil", "az", "heroku", "fly", "flyctl", "vercel", "netlify", "doctl", "wrangler", "firebase", "s3cmd"),
    ),
    "-c|-cw": ("deletes the history", ("history",)),
    "-w|--write|-p|--load": ("changes the kernel", ("sysctl",)),
}
_DEVICE_TOOLS = ("wipefs", "fdisk", "sfdisk", "gdisk", "sgdisk", "cfdisk", "parted", "mkswap", "hdparm", "blkdiscard")
_RULES: dict[str, Rule] = {
    **FILE_RULES,
    **REMOTE_RULES,
    **CODE_RULES,
    **dict.fromkeys(("systemctl", "service", "launchctl", "rc-service", "loginctl"), _services),
    **dict.fromkeys(("init", "telinit"), _init),
    **dict.fromkeys(("shutdown", "reboot", "halt", "poweroff"), _power),
    **dict.fromkeys(("mount", "ifconfig"), _with_operands),
    **dict.fromkeys(("psql", "mysql", "mariadb", "sqlite3", "sqlcmd", "mongosh", "mongo", "redis-cli", "duckdb"), _sql),
    **dict.fromkeys(("vim", "vi", "nvim", "emacs"), _editor),
    **dict.fromkeys(("make", "gmake"), _make),
    **dict.fromkeys(("mapfile", "readarray", "complete", "compgen", "bind"), _builtin_with_callback),
    **dict.fromkeys(("export", "declare", "typeset", "local", "readonly"), _set_variables),
    **dict.fromkeys(("man", "less"), _printer),
    **dict.fromkeys(_DEVICE_TOOLS, _device),
    "kill": _kill,
    "crontab": _crontab,
    "hash": _hash,
    "ip": _ip,
    "patch": _patch,
}
_ASK_BY_NAME = {name: reason for reason, names in _ASK.items() for name in names}
_ASK_ON_BY_NAME = {
    name: (reason, re.compile(pattern, re.DOTALL)) for pattern, (reason, names) in _ASK_ON.items() for name in names
}


def judge_program(start: ProgramStart) -> Assessment:
    """What starting this program would do."""
    if start.name.startswith(("mkfs", "mke2fs")):
        return refuse("makes a file system")
    if reason := _ASK_BY_NAME.get(start.name):
        return refuse(reason) if any(start.places.is_disk(arg) for arg in start.args) else ask(reason)
    if (entry := _ASK_ON_BY_NAME.get(start.name)) and any(map(entry[1].fullmatch, start.args)):
        return ask(entry[0])
    rule = _RULES.get(start.name)
    return rule(start) if rule else HARMLESS
