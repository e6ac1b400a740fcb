"""Programs that send data elsewhere or change what others have: curl, wget, rsync, git, as rules. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from tailrace.agent.safety.rules.assessment import HARMLESS, Assessment, ProgramStart, Rule, ask, graver, judge_target
from tailrace.agent.safety.rules.options import Options

_CURL = Options(
    "#0123469aBfgGIijJkLlMnNOpqRsSvVZ", "ACDEFHKPQTUXYbcdehmortuwxyz",
    "data= data-raw= data-binary= data-ascii= data-urlencode= json= form= form-string= form-escape upload-file="
    " request= get head output="
    " output-dir= remote-name remote-header-name remote-name-all header= config= cookie= cookie-jar="
    " dump-header= user= url= url-query="
    " silent show-error fail fail-early fail-with-body location location-trusted insecure verbose include compressed"
    " max-time= connect-timeout= retry= retry-delay= retry-max-time= retry-all-errors retry-connrefused"
    " user-agent= referer= range= proxy= noproxy="
    " write-out= progress-bar no-progress-meter parallel http1.1 http2 http1.0 http3 tlsv1.2 tlsv1.3 cacert="
    " cert= key= resolve="
    " create-dirs globoff ipv4 ipv6 interface= limit-rate= no-buffer path-as-is raw unix-socket= trace= trace-ascii="
    " continue-at= time-cond= oauth2-bearer= basic digest next max-redirs= help? version stderr= quote="
    " mail-from= hsts= alt-svc= no-keepalive",
)  # fmt: skip
_CURL_SENDS = (
    "d", "data", "data-raw", "data-binary", "data-ascii", "data-urlencode", "json", "F", "form", "form-string", "T",
    "upload-file", "K", "config", "Q", "quote", "mail-from", "url-query", "u", "user", "b", "cookie", "oauth2-bearer",
)  # fmt: skip
_CURL_WRITES = (
    "o", "output", "output-dir", "c", "cookie-jar", "D", "dump-header", "trace", "trace-ascii", "stderr", "hsts",
    "alt-svc",
)  # fmt: skip
_WGET = Options(
    "46bcFdHkKLmNEnpqrSvxhV", "aABDeGiIlOoPQRtTUwX",
    "post-data= post-file= method= body-data= body-file= output-document= output-file= append-output="
    " directory-prefix= execute= input-file="
    " use-askpass= header= quiet verbose no-verbose continue timestamping no-clobber recursive level= mirror"
    " page-requisites"
    " convert-links no-parent accept= reject= tries= timeout= wait= user-agent= no-check-certificate"
    " show-progress progress= spider"
    " server-response content-disposition user= password= load-cookies= save-cookies= referer="
    " no-host-directories cut-dirs= max-redirect= limit-rate="
    " adjust-extension span-hosts domains= retry-connrefused waitretry= random-wait background unlink"
    " delete-after config= force-directories",
)  # fmt: skip
_WGET_SENDS = (
    "post-data", "post-file", "body-data", "body-file", "e", "execute", "use-askpass", "user", "password",
    "load-cookies", "delete-after", "unlink", "config",
)  # fmt: skip
_WGET_WRITES = (
    "O", "output-document", "o", "output-file", "a", "append-output", "P", "directory-prefix", "save-cookies",
)  # fmt: skip
_LOOPBACK = re.compile(r"(https?://)?(localhost|127\.0\.0\.1|\[::1\])(?=[:/?#]|$)")


def _fetch(start: ProgramStart) -> Assessment:
    curl = start.name == "curl"
    parsed = (_CURL if curl else _WGET).parse(start.words)
    methods = [word.text.upper() for word in parsed.values("X", "request", "method")]
    if any(method not in ("GET", "HEAD", "OPTIONS") for method in methods):
        return ask("sends data elsewhere")
    if parsed.has(*(_CURL_SENDS if curl else _WGET_SENDS)):
        return ask("sends data elsewhere")
    if parsed.unknown:
        return ask("has options that cannot be judged")
    sent = [*parsed.operands, *parsed.values("H", "header", "url", "A", "user-agent", "U", "e", "referer")]
    if any(word.dynamic and not _LOOPBACK.match(word.text) for word in sent):
        return ask("sends what is known only when it runs")
    targets = parsed.values(*(_CURL_WRITES if curl else _WGET_WRITES))
    return graver(*(judge_target(target, start.places) for target in targets if target.text != "-"))


def _rsync(start: ProgramStart) -> Assessment:
    args = start.args
    operands = [word for word in start.words if not word.text.startswith("-")]
    if any(
        re.match(r"-[a-zA-Z]*e|--rsh|--rsync-path|--del|--remove-s|--write-batch|--files-from", arg) for arg in args
    ):
        return ask("deletes files or starts programs")
    if any(re.match(r"([\w.-]+@)?[\w.-]+::?|rsync://", word.text) for word in operands):
        return ask("copies from or to another machine")
    return judge_target(operands[-1], start.places) if operands else HARMLESS


# ── git ──────────────────────────────────────────────────────────────────────────────────────────────────────

_GIT = Options(
    "pPhv", "cC",
    "git-dir= work-tree= exec-path? config-env= namespace= no-pager paginate bare no-replace-objects literal-pathspecs"
    " version help no-optional-locks html-path attr-source=",
)  # fmt: skip
# Settings whose value git runs or that say where it finds what it runs.
_GIT_RUNS = re.compile(
    r"alias\.|core\.(pager|editor|sshcommand|hookspath|fsmonitor|askpass|gitproxy|alternaterefscommand|worktree"
    r"|attributesfile)|.*\.(textconv|command|driver|cmd|path|helper|process|clean|smudge)"
    r"|pager\.|sequence\.editor|gpg\.|credential|diff\.external|include|uploadpack|receivepack|remote\..*\.(vcs"
    r"|uploadpack|receivepack|proxy)|http\.proxy|url\.|protocol\.|filter\.|trailer\.|interactive\.|browser\."
    r"|man\.|help\.browser|web\.browser|sendemail\.|init\.templatedir|submodule\..*\.update|uploadpackfilter",
    re.IGNORECASE,
)
_GIT_STARTS_PROGRAMS = re.compile(
    r"-x.*|--exec(=.*)?|--extcmd(=.*)?|--upload-pack(=.*)?|--receive-pack(=.*)?|--open-files-in-pager.*|-O\S+"
    r"|ext::.*|--template=.*"
)
_GIT_HARMLESS_EXEC = frozenset(
    {"clean", "diff", "log", "show", "status", "commit", "cherry-pick", "checkout", "ls-files"}
)


def _git(start: ProgramStart) -> Assessment:
    parsed = _GIT.parse(start.words, permuted=False)
    if any(_GIT_RUNS.match(word.text) for word in parsed.values("c", "config-env")) or any(
        parsed.values("exec-path")[:1]
    ):
        return ask("git settings that start programs")
    if parsed.unknown:
        return ask("has options that cannot be judged")
    if not parsed.operands:
        return HARMLESS
    verb, words = parsed.operands[0], parsed.operands[1:]
    if verb.dynamic:
        return ask("a git command that is known only when it runs")
    args = [word.text for word in words]
    if verb.text not in _GIT_HARMLESS_EXEC and any(map(_GIT_STARTS_PROGRAMS.fullmatch, args)):
        return ask("git that starts programs")
    outputs = [word._replace(text=word.text[9:]) for word in words if word.text.startswith("--output=")]
    if (rule := _GIT_RULES.get(verb.text)) and (reason := rule(_GitArguments(args))):
        return ask(reason)
    return graver(*(judge_target(word, start.places) for word in outputs))


class _GitArguments(NamedTuple):
    """The arguments of one git command."""

    args: list[str]

    @property
    def letters(self) -> set[str]:
        return {letter for arg in self.args if re.match(r"-[a-zA-Z]", arg) for letter in arg[1:]}

    @property
    def operands(self) -> list[str]:
        return [arg for arg in self.args if not arg.startswith("-")]

    def has(self, letters: str, *long: str) -> bool:
        """Whether one of these options is given, abbreviated or not."""
        given = [arg.split("=")[0] for arg in self.args if arg.startswith("--") and len(arg) > 3]
        return bool(self.letters & set(letters)) or any(name.startswith(option) for name in long for option in given)


def _push(git: _GitArguments) -> str:
    rewrites = git.has("fd", "--force", "--force-with-lease", "--mirror", "--delete", "--prune")
    rewrites = rewrites or any(arg.startswith(("+", ":")) for arg in git.args)
    return "rewrites or deletes what others may have" if rewrites else ""


def _stored(git: _GitArguments) -> str:
    """Subcommands by name: `git stash drop`, `git submodule foreach`."""
    deletes = {"remove", "rm", "delete", "expire", "drop", "clear", "prune", "foreach", "run", "deinit", "set-url"}
    return "throws away what is stored, or starts programs" if set(git.args[:2]) & deletes else ""


def _tag(git: _GitArguments) -> str:
    return "throws away tags" if git.has("df", "--delete", "--force") else ""


def _config(git: _GitArguments) -> str:
    if git.has("e", "--edit"):
        return "changes settings"
    if len(git.operands) < 2:
        return ""
    if any(map(_GIT_RUNS.match, git.args)):
        return "git settings that start programs"
    return "changes settings" if git.has("", "--unset-all", "--remove-section", "--global", "--system") else ""


def _checkout(git: _GitArguments) -> str:
    """A file's name stands where a branch's may: what ends like one, or follows a branch, is taken for one."""
    begins = git.has("bBt", "--track", "--orphan")
    paths = git.operands
    named = "--" in git.args or "." in paths or (len(paths) > 1 and not begins)
    named = named or any(re.search(r"/$|\.(?!x$)[a-zA-Z]\w{0,9}$", path) for path in paths if not begins)
    return "throws away changes" if named or git.has("f", "--force") else ""


def _restore(git: _GitArguments) -> str:
    staged_alone = git.has("S", "--staged") and not git.has("W", "--worktree")
    return "" if staged_alone else "throws away changes"


def _when(reason: str, letters: str, *long: str) -> Callable[[_GitArguments], str]:
    return lambda git: reason if git.has(letters, *long) else ""


def _always(reason: str) -> Callable[[_GitArguments], str]:
    return lambda _git: reason


_GIT_RULES: dict[str, Callable[[_GitArguments], str]] = {
    **dict.fromkeys(("remote", "worktree", "notes", "submodule", "reflog", "stash", "bisect", "lfs"), _stored),
    **dict.fromkeys(("rm", "filter-branch", "filter-repo", "prune"), _always("deletes files or commits")),
    **dict.fromkeys(("send-email", "daemon", "instaweb", "credential"), _always("runs for others, or sends")),
    **dict.fromkeys(("gc", "repack", "maintenance"), _when("throws away commits", "", "--prune")),
    **dict.fromkeys(("update-ref", "symbolic-ref"), _when("throws away commits", "d", "--delete", "--stdin")),
    **dict.fromkeys(
        ("rebase", "am", "difftool", "grep"), _when("git that starts programs", "xO", "--exec", "--extcmd")
    ),
    **dict.fromkeys(("tag", "replace"), _tag),
    "push": _push,
    "clone": lambda git: "git settings that start programs" if any(map(_GIT_RUNS.match, git.operands)) else "",
    "reset": _when("throws away changes", "", "--hard", "--merge", "--keep"),
    "clean": lambda git: "" if git.has("n", "--dry-run") else "deletes files that git does not know",
    "branch": _when("throws away commits", "DfMC", "--force"),
    "checkout": _checkout,
    "switch": _when("throws away changes", "f", "--force", "--discard-changes"),
    "restore": _restore,
    "config": _config,
}


REMOTE_RULES: dict[str, Rule] = {**dict.fromkeys(("curl", "wget"), _fetch), "rsync": _rsync, "git": _git}
