"""Programs that delete, move, overwrite or open up files, as rules.

Pure. Deleting asks. Writing in the working directory does not, also over a file that is there; elsewhere it asks.
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
from tailrace.agent.safety.rules.options import Options, Parsed
from tailrace.agent.safety.words import Word

_RM = Options("dfiIrRv", "", "recursive force dir verbose one-file-system no-preserve-root preserve-root? interactive?")
_RIGHTS = Options(
    "cfvRHLPh",
    "",
    "recursive verbose changes quiet silent reference= no-preserve-root from= dereference no-dereference",
)
_COPY = Options(
    "abdfilLnpPrRsTuvxHZDcCFhk", "tSmogA",
    "target-directory= backup? suffix= recursive force archive link symbolic-link no-clobber update? verbose parents"
    " preserve? no-preserve= sparse= reflink? no-target-directory strip-trailing-slashes mode= owner= group= directory"
    " symbolic relative dereference no-dereference attributes-only one-file-system interactive remove-destination"
    " keep-directory-symlink copy-contents debug exchange logical physical strip strip-program= compare",
)  # fmt: skip
_TAR = Options(
    "cxtruAdzjJZvkpPOUWShlamMnGisBRw", "fCITXKNVbLFgHo",
    "create extract get list append update delete diff compare gzip bzip2 xz zstd auto-compress verbose file="
    " directory= use-compress-program= to-command= checkpoint? checkpoint-action= remove-files info-script="
    " new-volume-script= rsh-command= rmt-command= exclude= exclude-from= exclude-vcs strip-components= transform="
    " absolute-names wildcards no-same-owner no-same-permissions keep-old-files overwrite files-from= totals"
    " numeric-owner owner= group="
    " sort= mtime= format= null same-owner preserve-permissions dereference one-file-system ignore-failed-read"
    " warning=",
)  # fmt: skip
_COMPRESSORS = frozenset({"gzip", "pigz", "zstd", "xz", "bzip2", "lz4", "pbzip2", "lzma"})


def _rm(start: ProgramStart) -> Assessment:
    parsed = _RM.parse(start.words)
    recursive = parsed.has("r", "R", "recursive")
    if parsed.has("no-preserve-root") or (recursive and _whole_system(start, parsed.operands)):
        return refuse("deletes the system or a whole home directory")
    if recursive:
        return ask("deletes directories with all they hold")
    if any(word.globbed or word.dynamic for word in parsed.operands):
        return ask("deletes files that are known only when it runs")
    if any(start.places.leads_outside(word.text) for word in parsed.operands):
        return ask("deletes files outside the working directory")
    return HARMLESS if start.args in (["--help"], ["--version"]) else ask("deletes files")


def _rmdir(start: ProgramStart) -> Assessment:
    outside = any(start.places.leads_outside(path) for path in start.args if not path.startswith("-"))
    return ask("deletes directories outside the working directory") if outside else HARMLESS


def _whole_system(start: ProgramStart, operands: list[Word]) -> bool:
    return any(start.places.whole_system(word.text) for word in operands)


def _rights(start: ProgramStart) -> Assessment:
    words = [word for word in start.words if not re.fullmatch(r"-[rwxXst,ugoa+=-]+", word.text)]  # `chmod -x file`
    parsed = _RIGHTS.parse(words)
    targets = parsed.operands[0 if parsed.has("reference") or len(words) < len(start.words) else 1 :]
    recursive = parsed.has("R", "recursive")
    if recursive and _whole_system(start, targets):
        return refuse("changes the rights of the whole system")
    if recursive or any(start.places.leads_outside(word.text) or start.places.sensitive(word.text) for word in targets):
        return ask("changes rights or owners beyond one file")
    return ask("changes rights of files that are known only when it runs") if _unknown(targets) else HARMLESS


def _unknown(words: list[Word]) -> bool:
    return any(word.dynamic and not word.text for word in words)


def _chmod(start: ProgramStart) -> Assessment:
    modes = [a for a in start.args if re.fullmatch(r"[0-7]{3,4}|[ugoa]*[-+=][rwxXst]+(,[ugoa]*[-+=][rwxXst]+)*", a)]
    open_to_all = any(re.fullmatch(r"[0-7]?[0-7][0-7][2367]|.*[oa][+=][rx]*w.*|[+=][rx]*w.*", m) for m in modes)
    set_id = any(re.fullmatch(r"[4267][0-7]{3}|[ug]*[+=][rwx]*s.*", m) for m in modes)
    if open_to_all or set_id:
        return graver(_rights(start), ask("opens a file to everyone or lets it run with other rights"))
    return _rights(start)


def _dd(start: ProgramStart) -> Assessment:
    targets = [word._replace(text=word.text[3:]) for word in start.words if word.text.startswith("of=")]
    if targets and "if=/dev/null" in start.args:
        return graver(ask(f"empties {targets[0].text}"), *(judge_target(target, start.places) for target in targets))
    return graver(*(judge_target(target, start.places) for target in targets))


def _split_target(parsed: Parsed) -> tuple[list[Word], Word]:
    """The sources and the target of a program that is called like cp."""
    if targets := parsed.values("t", "target-directory"):
        return parsed.operands, targets[-1]
    return parsed.operands[:-1], parsed.operands[-1] if parsed.operands else Word("")


def _copy(start: ProgramStart) -> Assessment:
    parsed = _COPY.parse(start.words)
    sources, target = _split_target(parsed)
    if start.name == "install" and parsed.has("d", "directory"):
        return graver(*(judge_target(word, start.places) for word in parsed.operands))
    if parsed.has("strip-program") or parsed.unknown:
        return ask("has options that cannot be judged")
    worst = judge_target(target, start.places) if parsed.operands else HARMLESS
    if any(word.text == "/dev/null" for word in sources):
        return graver(worst, ask(f"empties {target.text}"))
    if start.name == "ln" and any(start.places.leads_outside(word.text) for word in sources):
        return graver(worst, ask("links to what lies outside the working directory"))
    return worst


def _move(start: ProgramStart) -> Assessment:
    """A move deletes its sources."""
    sources, target = _split_target(_COPY.parse(start.words))
    if _whole_system(start, sources):
        return refuse("moves the system or a whole home directory away")
    places = start.places
    lost = [w.text for w in sources if places.leads_outside(w.text) or places.sensitive(w.text)]
    if target.text == "/dev/null" or lost or _unknown(sources):
        return graver(_copy(start), ask(f"moves {lost[0] if lost else 'files'} away"))
    return _copy(start)


def _all_written(start: ProgramStart) -> Assessment:
    """Every operand is written to."""
    targets = [word for word in start.words if not word.text.startswith("-") or word.text == "-"]
    return graver(*(judge_target(target, start.places) for target in targets))


def _truncate(start: ProgramStart) -> Assessment:
    return graver(ask("cuts files"), _all_written(start))


def _touch(start: ProgramStart) -> Assessment:
    parsed = Options("acfhm", "drt", "date= reference= time= no-create no-dereference").parse(start.words)
    return graver(*(judge_target(target, start.places) for target in parsed.operands))


def _mkdir(start: ProgramStart) -> Assessment:
    parsed = Options("pvZ", "m", "parents verbose mode= context?").parse(start.words)
    outside = any(start.places.sensitive(word.text) or start.places.is_disk(word.text) for word in parsed.operands)
    return ask("makes directories where programs look for settings") if outside else HARMLESS


def _tar(start: ProgramStart) -> Assessment:
    words = list(start.words)
    if words and re.fullmatch(r"[a-zA-Z]+", words[0].text):  # `tar xzf`
        words[0] = words[0]._replace(text="-" + words[0].text)
    parsed = _TAR.parse(words)
    programs = [word.text for word in parsed.values("I", "use-compress-program")]
    runs = parsed.has(
        "to-command", "checkpoint-action", "info-script", "new-volume-script", "rsh-command", "rmt-command"
    )
    if runs or parsed.has("F") or any(program not in _COMPRESSORS for program in programs):
        return ask("tar that starts programs")
    if parsed.has("remove-files", "delete", "P", "absolute-names") or parsed.unknown:
        return ask("tar that deletes files or writes to any path")
    targets = [*parsed.values("C", "directory")] if parsed.has("x", "extract", "get") else []
    if parsed.has("c", "create", "r", "append", "u", "update"):
        targets += [word for word in parsed.values("f", "file") if word.text != "-"]
    if any(":" in word.text for word in parsed.values("f", "file")):
        return ask("reads or writes an archive on another machine")
    return graver(*(judge_target(target, start.places) for target in targets))


def _archiver(start: ProgramStart) -> Assessment:
    """zip, unzip, 7z: options that delete, run a program, or name the directory to write to."""
    args = start.args
    if (
        any(re.fullmatch(r"-T?T|--unzip-command.*|-[a-z]*m|--move|-sdel|-d", arg) for arg in args)
        and start.name != "unzip"
    ):
        return ask("moves files into an archive, deletes from it, or starts programs")
    targets = [word for word in start.words if not word.text.startswith("-")][:1] if start.name == "zip" else []
    if "-d" in args[:-1]:
        targets.append(start.words[args.index("-d") + 1])
    targets += [word._replace(text=word.text[2:]) for word in start.words if re.match(r"-[od]\S", word.text)]
    return graver(*(judge_target(target, start.places) for target in targets))


def _output_option(start: ProgramStart) -> Assessment:
    """Programs that write where -o says (sort, gcc, openssl, gpg, pandoc)."""
    if any(re.match(r"--compress-prog|--filter", arg) for arg in start.args):
        return ask(f"{start.name} that starts programs")
    targets = [
        following
        for word, following in zip(start.words, start.words[1:], strict=False)
        if re.fullmatch(r"-[a-zA-Z]*o|--outp?u?t?|-out", word.text)
    ]
    targets += [w._replace(text=w.text.partition("=")[2]) for w in start.words if re.match(r"--out[a-z]*=", w.text)]
    targets += [
        w._replace(text=w.text[2:]) for w in start.words if re.match(r"-o[^=]", w.text) and start.name == "sort"
    ]
    return graver(*(judge_target(target, start.places) for target in targets))


def _compressor(start: ProgramStart) -> Assessment:
    """Replaces its operands, unless it writes to standard output or only looks."""
    if any(re.match(r"-[a-zA-Z]*[clt]|--stdout|--to-stdout|--list|--test", arg) for arg in start.args):
        return HARMLESS
    return _all_written(start)


def _ssh_keygen(start: ProgramStart) -> Assessment:
    if any(re.match(r"-[a-zA-Z]*[lyFB]", arg) for arg in start.args):
        return HARMLESS
    files = [word for option, word in zip(start.words, start.words[1:], strict=False) if option.text == "-f"]
    return graver(*(judge_target(word, start.places) for word in files)) if files else ask("makes a key")


FILE_RULES: dict[str, Rule] = {
    **dict.fromkeys(("gzip", "gunzip", "bzip2", "bunzip2", "xz", "unxz", "zstd", "lz4", "compress"), _compressor),
    "ssh-keygen": _ssh_keygen,
    **dict.fromkeys(("rm", "unlink"), _rm),
    **dict.fromkeys(("chown", "chgrp", "chattr", "setfacl"), _rights),
    **dict.fromkeys(("cp", "install", "ln"), _copy),
    **dict.fromkeys(("zip", "unzip", "7z"), _archiver),
    **dict.fromkeys(("sort", "split", "gcc", "cc", "clang", "g++", "openssl", "gpg", "pandoc"), _output_option),
    "rmdir": _rmdir,
    "chmod": _chmod,
    "dd": _dd,
    "mv": _move,
    "tee": _all_written,
    "truncate": _truncate,
    "touch": _touch,
    "mkdir": _mkdir,
    "tar": _tar,
}
