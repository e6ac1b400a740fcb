"""The programs that a command line may start without a question: those that only read, and those that build and test.

Pure data. `known_programs` reads it. A program that is in neither table asks, and so does a known one with an option
that makes it write elsewhere, start a program or send something.

A program that builds or tests runs the project's own code and may write in the working directory; what that code does
is not judged here. So none that fetches packages, deploys, or takes code from the command line is in the table.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.agent.safety.words import names


class Known(NamedTuple):
    """How the arguments of one program are read. Options are named as they are written, with blanks between them."""

    deny: str = ""  # options that make it unknown again; an abbreviation of a long one counts
    only: str | None = None  # where given, the only options that are known
    values: str = ""  # letters of options whose value is text
    paths: str = ""  # letters of options whose value is a place
    texts: int = 0  # how many of the first operands are text, not places
    no_text: str = ""  # options with which no operand is text
    any_text: bool = False  # no argument is a place
    operand: str = ""  # the pattern that each operand matches
    least: int = 0  # operands
    most: int | None = None
    rest: bool = False  # what follows `--` is for the project's script

    @property
    def is_plain(self) -> bool:
        """Whether it is known with any option and any number of operands."""
        return not self.deny and self.only is None and self.most is None


class Wrapper(NamedTuple):
    """A program that starts the one in its arguments, which is judged as if it stood alone."""

    flags: str = ""
    values: str = ""  # letters of options with a value, which is no place
    operands: int = 0  # of its own, before the program
    builds: bool = False  # only a program that builds or tests may stand behind it


def _each(programs: str, known: Known = Known()) -> dict[str, Known]:  # noqa: B008 - immutable
    return dict.fromkeys(names(programs), known)


_GREP = "-e -f --regexp --file"
_GIT_RUNS = "--output --ext-diff --textconv --filters -O --open-files-in-pager"
_GIT_READ = Known(deny=_GIT_RUNS, values="SGLnU")
_GIT_LISTS = Known(only="-a -r -v -vv -l --all --list --show-current --sort --format --contains --merged", most=0)

READS: dict[str, Known] = {
    **_each("cat tac wc nl fold fmt expand rev join comm cmp stat readlink realpath ls du df strings which type"),
    **_each("od hexdump base64 base32 md5sum sha1sum sha224sum sha256sum sha384sum sha512sum cksum zcat readelf"),
    **_each("uname whoami id groups nproc uptime arch free cal lscpu locale uuidgen exit return break continue"),
    **_each("head tail", Known(values="nc")),
    **_each("cut paste", Known(values="dfcb")),
    **_each("nm objdump", Known("--plugin")),
    "column": Known(values="s"),
    "diff": Known(values="UCWIFxL"),
    **_each(": true false echo test [ tr seq sleep expr basename dirname pwd", Known(any_text=True)),
    **_each("grep egrep fgrep", Known(values="ABCmdDe", paths="f", texts=1, no_text=_GREP)),
    "rg": Known(
        "--pre --hostname-bin", values="ABCeEgjMmrtT", paths="f", texts=1, no_text=f"{_GREP} --files --type-list"
    ),
    "ag": Known("--pager", values="Gm", paths="p", texts=1, no_text="-g"),
    **_each("fd fdfind", Known("-x -X --exec --exec-batch", values="dtecEj", paths="C", texts=1)),
    "find": Known("-delete -ok -okdir -fprint -fprint0 -fprintf -fls -files0-from"),
    "sed": Known(
        only="-n -e -E -r -s -u -z --quiet --silent --regexp-extended --separate --null-data --posix --debug --sandbox",
        values="e",
        texts=1,
        no_text="-e",
    ),
    **_each("awk gawk mawk nawk", Known(only="-F -v", values="Fv", texts=1)),
    "jq": Known(
        only="-r -c -n -s -e -a -S -C -M -j -R --raw-output --compact-output --null-input --slurp --exit-status --tab"
        " --raw-input --sort-keys --join-output --arg --argjson --slurpfile --rawfile --indent --stream",
        texts=1,
    ),
    "sort": Known("-o --output -T --temporary-directory --compress-program --files0-from", values="ktS"),
    "uniq": Known(values="fsw", most=1),
    "xxd": Known(values="lscgo", most=1),
    "file": Known("-C --compile"),
    "tree": Known("-o -R", values="LIP"),
    "date": Known("-s --set", values="d", operand=r"\+.*"),
    "wait": Known(only="", most=0),
    "hostname": Known(only="-f -s -i -I", most=0),
    "printf": Known("-v", any_text=True),
    "ps": Known(values="opCuUgGt", operand="a?u?x?f?w*", most=1),
    **{
        f"git {verb}": _GIT_READ
        for verb in names(
            "status diff log show blame annotate ls-files ls-tree rev-parse rev-list merge-base describe shortlog"
            " cat-file name-rev for-each-ref show-ref count-objects check-ignore check-attr diff-tree diff-files"
            " diff-index whatchanged version cherry range-diff"
        )
    },
    "git grep": Known(_GIT_RUNS, values="ABCem", paths="f", texts=1, no_text=_GREP),
    "git branch": _GIT_LISTS,
    "git tag": _GIT_LISTS,
    "git remote": Known(only="-v --verbose", operand="get-url|origin|upstream"),
    "git stash": Known(only="-p --stat --name-only", operand=r"list|show|stash@\{\d+\}", least=1, most=2),
    "git worktree": Known(only="--porcelain", operand="list", least=1),
    "git submodule": Known(only="--recursive", operand="status"),
    "git reflog": Known(only="-n --oneline --all", values="n", operand="show|HEAD|[0-9]+"),
    "git config": Known(only="--get --get-all --get-regexp -l --list --show-origin --local", most=1),
    "go version": Known(most=0),
    "go list": Known("-toolexec -exec -overlay -modfile -ldflags"),
    "go doc": Known(any_text=True),
    "npm ls": Known(only="--depth --all --json --long"),
    "cargo tree": Known("--config -Z"),
    "pip list": Known(only="--format"),
    "pip show": Known(only="-f"),
    "pip check": Known(only=""),
}

# Names of targets and scripts that build or test: `make test-unit`, `npm run lint:css`. A suffix that may deploy asks.
_TARGET = (
    r"(?:all|build|compile|debug|docs?|fmt|format|typecheck|types|coverage"
    r"|(?:tests?|check|lint|unit|spec)"
    r"(?:[-_:.](?:all|unit|integration|fast|slow|quick|ci|cov|coverage|watch|types?|format|fmt|lint|fix|css|js|ts|py))*)"
)
_GO = "-exec -toolexec -vettool -overlay -modfile -ldflags -gccgoflags -compiler"
_CARGO = Known("--config -Z --open --index --registry", values="pjF")
_SCRIPT = Known(only="-s --silent --if-present -w --workspace --workspaces -ws", values="w", operand=_TARGET, rest=True)
_PYTEST = Known("--basetemp --pastebin -o --override-ini --pdb --pdbcls --trace --tx", values="kmWnpr", paths="c")

BUILDS: dict[str, Known] = {
    "mkdir": Known(values="m"),
    "touch": Known(values="dt", paths="r"),
    **_each(
        "make gmake",
        Known("-f --file --makefile -I --include-dir --eval -E -e -o -W", paths="C", operand=rf"{_TARGET}|\d+"),
    ),
    "ninja": Known("-t -f", values="jkl", paths="C", operand=_TARGET),
    "cmake": Known(
        only="-DCMAKE_BUILD_TYPE -DBUILD_TESTING -G -W -S -B --build -j --parallel --config --fresh",
        values="GW",
        paths="SB",
    ),
    "ctest": Known(
        "-S -D -T -M --script --dashboard --test-action --test-model --build-and-test --test-command", values="jLRI"
    ),
    **_each("pytest py.test", _PYTEST),
    "python -m unittest": Known(values="k"),
    "python -m compileall": Known("-i", values="dspoje"),
    "python -m py_compile": Known(),
    "python -m json.tool": Known(most=1),
    **{f"ruff {verb}": Known() for verb in ("check", "format", "rule", "linter", "version")},
    "mypy": Known("--install-types --python-executable --non-interactive", values="cmp"),
    **_each("pyright black isort flake8 tsc eslint stylelint prettier rspec rubocop phpunit phpstan shellcheck"),
    **_each("gofmt rustfmt"),
    "pylint": Known("--init-hook --load-plugins"),
    **{f"coverage {verb}": Known() for verb in ("report", "html", "xml", "json", "lcov")},
    **_each("jest mocha", Known(values="tg")),
    "vitest": Known("--ui --api --open", values="t"),
    **{f"biome {verb}": Known() for verb in ("check", "lint", "format")},
    **{f"deno {verb}": Known(only="-q --quiet --check") for verb in ("check", "lint", "fmt", "test")},
    **{f"{tool} {verb}": _SCRIPT for tool in ("npm", "pnpm", "yarn") for verb in ("run", "test", "t")},
    **{f"{tool} {verb}": Known(only="-s --silent") for tool in ("pnpm", "yarn") for verb in ("build", "lint")},
    "npm run-script": _SCRIPT,
    "bun test": Known("--preload -r --config -c", values="t"),
    "bun run": _SCRIPT,
    **{f"cargo {verb}": _CARGO for verb in ("build", "b", "check", "c", "test", "t", "clippy", "fmt", "doc", "bench")},
    **{f"go {verb}": Known(_GO) for verb in ("build", "test", "vet", "fmt")},
    **{
        f"dotnet {verb}": Known(only="-c --configuration --no-restore --no-build --nologo --filter")
        for verb in ("build", "test")
    },
    **{f"swift {verb}": Known(only="-c -v --filter --parallel") for verb in ("build", "test")},
    **{
        f"mix {verb}": Known(only="--trace --failed --stale --check-formatted")
        for verb in ("test", "compile", "format")
    },
    **_each(
        "mvn mvnw",
        Known(
            only="-q -B -o -DskipTests -am --offline --batch-mode",
            operand=r"test|compile|test-compile|verify|package|validate",
        ),
    ),
    **_each(
        "gradle gradlew",
        Known(
            only="-q --quiet --offline --info --stacktrace --no-daemon --parallel --continue",
            operand=rf"(?::?[\w-]+:)*(?:{_TARGET}|assemble|compile\w+)",
        ),
    ),
    "rake": Known(only="-q -s", operand="test|spec|lint", least=1),
    "rails test": Known(),
    "meson": Known("--wrapper --gdb --gdb-path", values="j", paths="C", operand="compile|test"),
}

WRAPPERS: dict[str, Wrapper] = {
    "env": Wrapper(),
    "time": Wrapper("-p"),
    "nohup": Wrapper(),
    "command": Wrapper(),
    "nice": Wrapper("", "n"),
    "stdbuf": Wrapper("", "ioe"),
    "timeout": Wrapper("-v --foreground --preserve-status --verbose", "ks", 1),
    "xargs": Wrapper("-0 -r -t -x --null --no-run-if-empty --verbose", "ILnPdsE"),
    "uv run --offline": Wrapper("-q --quiet --frozen --locked --no-sync --all-extras --dev --no-dev", builds=True),
    "uv run --no-sync": Wrapper("-q --quiet --frozen --locked --offline --all-extras --dev --no-dev", builds=True),
    "poetry run": Wrapper(builds=True),
    "bundle exec": Wrapper(builds=True),
    "npx --no-install": Wrapper(builds=True),
    "npx --no": Wrapper(builds=True),
}
# Whole lines that only report a version; `--version` alone does so with each of these programs.
REPORTS_VERSION = names(
    "python node npm npx pnpm yarn bun deno ruby perl php java javac rustc cargo gcc g++ clang cmake make git pip uv"
    " poetry bash tsc dotnet docker gradle mvn jq rg"
)
VERSION_LINES = frozenset({"python -V", "node -v", "npm -v", "java -version", "php -v", "ruby -v"})

# Programs that list files of the directory that they are given, one name a line, and programs that keep whole lines.
LISTS_NAMES: dict[str, frozenset[str]] = {
    "find": frozenset(),
    "git ls-files": frozenset(),
    "rg": frozenset({"-l", "--files", "--files-with-matches"}),
    "grep": frozenset({"-l", "-rl", "-ril", "-lr", "--files-with-matches"}),
    "git grep": frozenset({"-l", "--name-only"}),
    "git diff": frozenset({"--name-only"}),
    "fd": frozenset(),
}
KEEPS_LINES: dict[str, str] = {
    "sort": "urnzVf",
    "uniq": "",
    "head": "n0123456789",
    "tail": "n0123456789",
    "grep": "vEFiqw",
}

# Variables that may be set for a program. Of others only lower-case names may be set, for the line itself.
VARIABLES = names(
    "CI DEBUG VERBOSE V COLUMNS LINES TERM LANG LANGUAGE LC_ALL LC_CTYPE TZ NO_COLOR FORCE_COLOR CLICOLOR NODE_ENV"
    " PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED PYTHONHASHSEED PYTHONIOENCODING PYTHONUTF8 RUST_BACKTRACE RUST_LOG"
    " CARGO_TERM_COLOR HYPOTHESIS_PROFILE"
)
PATH_VARIABLES = frozenset({"PYTHONPATH"})  # directories that hold the project's code
PAGERS = frozenset({"PAGER", "GIT_PAGER"})  # may be `cat`
SETS_VARIABLES = frozenset({"export", "local", "declare", "typeset", "readonly", "unset", "read"})
# Programs that print nothing: what they are redirected to is emptied.
SILENT = frozenset({"", ":", "true", "false", "test", "[", "sleep", "cd", "set", "mkdir", "touch", *SETS_VARIABLES})
