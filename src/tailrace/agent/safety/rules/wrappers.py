"""Programs that start another program, and where in their arguments that one stands.

Pure data and one function. What a wrapper runs is judged as if it stood alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.agent.safety.rules.options import Options, Parsed
from tailrace.agent.safety.words import Word


class Wrapper(NamedTuple):
    """`operands` of its own stand before the program. Options in `lines` have a shell line as their value. With
    `joined`, its operands are the words of a shell line."""

    options: Options = Options()
    operands: int = 0
    lines: tuple[str, ...] = ()
    joined: bool = False
    more_arguments: bool = False  # what it reads becomes arguments


class Unwrapped(NamedTuple):
    """What a wrapper starts: words, or whole lines. `unclear`: it has options that are not known here."""

    words: list[Word]
    lines: list[Word]
    parsed: Parsed
    unclear: bool = False


_STRACE = Options("CcdfFhiknqrtTvVwxyYz", "abeEIoOpPsSuUX", "follow-forks output= trace= summary-only")
WRAPPERS: dict[str, Wrapper] = {
    "env": Wrapper(
        Options(
            "i0v",
            "uCS",
            "ignore-environment null debug unset= chdir= split-string= block-signal? default-signal? ignore-signal?"
            " list-signal-handling help version",
        )
    ),
    "nohup": Wrapper(Options("", "", "help version")),
    "nice": Wrapper(Options("0123456789", "n", "adjustment= help version")),
    "ionice": Wrapper(Options("t", "cnpPu", "class= classdata= pid= ignore pgid= uid=")),
    "time": Wrapper(Options("pvaVq", "fo", "portability verbose append format= output= quiet")),
    "timeout": Wrapper(Options("vfp", "ks", "kill-after= signal= foreground preserve-status verbose"), 1),
    "stdbuf": Wrapper(Options("", "ioe", "input= output= error=")),
    "setsid": Wrapper(Options("cfw", "", "ctty fork wait")),
    "command": Wrapper(Options("pvV")),
    "builtin": Wrapper(),
    "exec": Wrapper(Options("cl", "a")),
    "coproc": Wrapper(),
    "busybox": Wrapper(),
    "toybox": Wrapper(),
    "xargs": Wrapper(
        Options(
            "0rtxpo",
            "IEdLnPsa",
            "arg-file= delimiter= eof? max-lines? max-args= max-procs= max-chars= replace? null no-run-if-empty verbose"
            " interactive exit open-tty show-limits process-slot-var=",
        ),
        more_arguments=True,
    ),
    "watch": Wrapper(
        Options(
            "bcdegtwCprf",
            "nq",
            "interval= differences? no-title beep errexit chgexit color exec precise no-wrap equexit=",
        ),
        joined=True,
    ),
    "strace": Wrapper(_STRACE),
    "ltrace": Wrapper(_STRACE),
    "chrt": Wrapper(
        Options("abdfiormpRvV", "TPD", "batch deadline fifo idle other rr reset-on-fork all-tasks max pid verbose"), 1
    ),
    "taskset": Wrapper(Options("apcV", "", "all-tasks pid cpu-list"), 1),
    "caffeinate": Wrapper(Options("dimsu", "tw")),
    "flock": Wrapper(
        Options(
            "sxeunoFv",
            "wEc",
            "shared exclusive unlock nonblock nb timeout= wait= conflict-exit-code= close no-fork command= verbose",
        ),
        1,
        ("c", "command"),
    ),
    "script": Wrapper(
        Options(
            "aefqV",
            "cIOBTmoEt",
            "command= append return flush force quiet log-in= log-out= log-io= log-timing= echo= output-limit=",
        ),
        1,
        ("c", "command"),
    ),
    "prlimit": Wrapper(
        Options("", "op", "nofile? nproc? cpu? as? data? fsize? core? stack? memlock? rss? pid= output= raw noheadings")
    ),
    "numactl": Wrapper(
        Options("sHla", "NCmipP", "cpunodebind= physcpubind= membind= interleave= preferred= localalloc all")
    ),
    "setarch": Wrapper(Options("BFILRSTXZ3v"), 1),
    "unbuffer": Wrapper(Options("p")),
    "catchsegv": Wrapper(),
    "dbus-run-session": Wrapper(Options("", "", "config-file= dbus-daemon=")),
    "xvfb-run": Wrapper(
        Options("alh", "efnpsw", "auto-servernum error-file= server-num= server-args= wait= listen-tcp")
    ),
    "faketime": Wrapper(Options("mf"), 1),
    "tini": Wrapper(Options("sgvw", "pe")),
    "dumb-init": Wrapper(Options("vc", "r", "verbose single-child rewrite=")),
    "torsocks": Wrapper(),
    "proxychains": Wrapper(Options("q", "f")),
    "proxychains4": Wrapper(Options("q", "f")),
    "rlwrap": Wrapper(Options("acimnNrRsvw", "bCDefgHlOpqPSt")),
    "gtimeout": Wrapper(Options("vfp", "ks", "kill-after= signal= foreground preserve-status verbose"), 1),
    "sem": Wrapper(joined=True),
    "npx": Wrapper(
        Options("yq", "pc", "yes no package= call= quiet workspace= no-install prefer-online ignore-existing"),
        0,
        ("c", "call"),
    ),
    "uvx": Wrapper(Options("q", "p", "from= with= python= quiet")),
    "bunx": Wrapper(Options("", "p", "bun package=")),
    "pipx": Wrapper(),
    "poetry": Wrapper(Options("qvn", "CP", "quiet verbose no-interaction directory= project=")),
    "uv": Wrapper(
        Options(
            "qvn",
            "p",
            "quiet verbose no-cache directory= project= python= offline with= group="
            " extra= all-extras dev no-dev frozen locked isolated no-sync no-project module",
        )
    ),
}
# Of these, one subcommand starts the program that follows it.
RUN_SUBCOMMANDS = {"poetry": ("run",), "uv": ("run",), "pipx": ("run",)}
ELEVATED = frozenset(
    {
        "sudo",
        "doas",
        "su",
        "pkexec",
        "runuser",
        "gosu",
        "su-exec",
        "chroot",
        "nsenter",
        "unshare",
        "setpriv",
        "capsh",
        "bwrap",
    }
    | {
        "firejail",
        "systemd-run",
        "machinectl",
        "proot",
        "fakeroot",
        "run0",
        "parallel",
        "at",
        "batch",
        "daemonize",
        "start-stop-daemon",
    }
    | {"ssh", "mosh", "rsh", "sshpass", "gdb", "lldb", "entr", "inotifywait", "watchexec", "ip", "nsh"}
)


# A program or a shell line may stand behind one of these subcommands; behind any word where none is named.
LAUNCHERS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("tmux", "screen", "nix-shell", "dotenv"), frozenset()),
    **dict.fromkeys(("conda", "mamba", "micromamba", "pdm", "hatch", "rye", "pixi"), frozenset({"run"})),
    **dict.fromkeys(("bundle", "direnv", "mise", "asdf"), frozenset({"exec", "x"})),
    **dict.fromkeys(("npm", "pnpm", "yarn"), frozenset({"exec", "x", "dlx"})),
    "nix": frozenset({"run", "shell", "develop"}),
}


def replaced(word: Word, mark: str) -> Word:
    """The word with what stands for the mark when it runs."""
    if word.text == mark:
        return Word("", dynamic=True)
    return word._replace(dynamic=True) if mark in word.text else word


def unwrap(name: str, words: Sequence[Word]) -> Unwrapped:
    wrapper = WRAPPERS[name]
    parsed = wrapper.options.parse(words, permuted=False)
    rest = parsed.operands
    if name == "env":
        while rest and re.match(r"[A-Za-z_]\w*=|-$", rest[0].text):
            rest = rest[1:]
    lines = parsed.values(*wrapper.lines) if wrapper.lines else []
    own, rest = rest[: wrapper.operands], rest[wrapper.operands :]
    if wrapper.lines and rest and rest[0].text in ("-c", "--command"):  # `flock file -c line`
        lines, rest = [*lines, *rest[1:2]], []
    if name == "script" and not lines:
        rest = [Word("sh")]
    if wrapper.joined and rest:
        lines = [Word(" ".join(word.text for word in rest), any(word.dynamic for word in rest))]
        rest = []
    if wrapper.more_arguments and rest:
        marks = [word.text or "{}" for word in parsed.values("I", "replace")]
        rest = [replaced(word, marks[0]) for word in rest] if marks else [*rest, Word("", dynamic=True)]
    unclear = parsed.unknown or any(word.dynamic for word in own)
    return Unwrapped(rest, lines, parsed, unclear)
