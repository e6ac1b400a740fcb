"""The command line's frame: start-up, which commands there are, and how a command may end."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tailrace import __version__
from tailrace.cli import main as cli
from tailrace.config.load import Config
from tailrace.errors import TailraceError

HEAVY = {"msgspec", "yaml", "asyncio", "aiohttp", "ssl", "uvloop", "sqlite3", "tailrace.config", "tailrace.wire"}


def tailrace(*args: str, home: Path | None = None, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "TAILRACE_HOME": str(home or "/nonexistent")}
    return subprocess.run(
        [sys.executable, "-m", "tailrace", *args], input=stdin, capture_output=True, env=env, check=False, timeout=60
    )


class Scripted(ModuleType):
    """A command module that does what the test says."""

    def __init__(self, outcome: int | BaseException) -> None:
        super().__init__("scripted")
        self.outcome = outcome
        self.seen: list[tuple[argparse.Namespace, object]] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-q")

    def run(self, args: argparse.Namespace, config: Config | None = None) -> int:
        self.seen.append((args, config))
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scripted:
    module = Scripted(0)
    monkeypatch.setattr(cli, "import_module", lambda name: module)
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
    return module


# ── start-up ─────────────────────────────────────────────────────────────────────────────────────────────────


def modules_of(option: str) -> set[str]:
    code = (
        "import sys\nbefore = set(sys.modules)\nfrom tailrace.cli.main import main\n"
        f"try: main(['{option}'])\nexcept SystemExit: pass\n"
        "print(*(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stderr.split())


def test_the_version_costs_little_more_than_python_itself() -> None:
    """Imports are what it costs, and these can be counted whatever else the machine does."""
    modules = modules_of("--version")
    assert HEAVY & modules == set()
    own = {name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names}
    plugins = {"tailrace.plugins", "tailrace.plugins.integration"}
    assert own == {"tailrace", "tailrace.cli", "tailrace.cli.main", "tailrace.errors"} | plugins
    assert len(modules) < 75, "argparse and what it needs are about fifty"


def test_help_imports_of_an_integration_only_what_it_says_of_itself() -> None:
    modules = modules_of("--help")
    assert HEAVY & modules <= {"msgspec", "tailrace.config"}
    assert {name.count(".") for name in modules if name.startswith("tailrace.integrations.")} == {2}


def test_a_chat_in_the_terminal_imports_no_aiohttp() -> None:
    """It would take a quarter of the time in which the command starts."""
    code = (
        "import sys, tailrace.app.app, tailrace.cli.chat.line_chat, tailrace.cli.chat.oneshot\n"
        "import tailrace.cli.flow.watch, tailrace.cli.runs.commands\n"
        "from tailrace.tools.toolbox import BUILTIN, builtin_tools\n"
        "builtin_tools(BUILTIN, environment={})\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert {name for name in done.stdout.split() if name.partition(".")[0] == "aiohttp"} == set()


def test_a_server_without_a_chat_platform_imports_nothing_of_one() -> None:
    code = (
        "import sys, tailrace.app.app, tailrace.cli.commands.serve\n"
        "import tailrace.gateway.gateway, tailrace.server.app\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    roots = {name.partition(".")[0] for name in done.stdout.split()}
    assert roots & {"markdown_it", "telegram", "discord", "slack_sdk", "nio"} == set()
    assert roots & {"tree_sitter", "rich", "prompt_toolkit", "mcp", "opentelemetry", "asyncpg", "redis"} == set()


# ── what there is ────────────────────────────────────────────────────────────────────────────────────────────


def test_help_lists_every_command_in_its_group() -> None:
    done = tailrace("--help")
    assert done.returncode == 0
    groups = [part.split("\n") for part in done.stdout.decode().split("\n\n") if part.split("\n")[0].endswith(":")]
    listed = {head.removesuffix(":"): [line.split()[0] for line in lines if line] for head, *lines in groups[1:]}
    assert list(listed) == ["talk", "look", "serve", "flows", "admin"]
    assert listed["serve"] == ["serve", "gateway", "reload", "acp", "mcp"]
    commands = cli.all_commands()
    assert {name: group for group, names in listed.items() for name in names} == {
        name: command.group for name, command in commands.items()
    }


@pytest.mark.parametrize("name", cli.all_commands())
def test_every_command_explains_itself(name: str) -> None:
    done = tailrace(name, "--help")
    assert done.returncode == 0
    assert done.stdout.decode().startswith(f"usage: tailrace {name} ")


@pytest.mark.parametrize("name", cli.all_commands())
def test_every_command_takes_a_log_level(name: str) -> None:
    options = [option for action in cli.parser_of(name)._actions for option in action.option_strings]
    assert "--log-level" in options


@pytest.mark.parametrize("words", [("--log-level", "debug", "check", "x"), ("check", "x", "--log-level", "debug")])
def test_the_log_level_stands_before_or_after_a_word_of_flow(words: tuple[str, ...]) -> None:
    assert cli.parser_of("flow").parse_args(words).log_level == "debug"


def test_the_version() -> None:
    assert tailrace("--version").stdout.decode().strip() == f"tailrace {__version__}"


@pytest.mark.parametrize("args", [("--frobnicate",), ("decode",), ("decode", "x", "--dialect", "klingon")])
def test_wrong_use_exits_2_and_says_how_it_is_right(args: tuple[str, ...]) -> None:
    done = tailrace(*args)
    assert (done.returncode, done.stdout) == (2, b"")
    usage, error = done.stderr.decode().split("error: ")
    assert usage.startswith("usage: tailrace")
    assert error.count("\n") == 1


def test_a_directory_that_is_gone_is_one_line(tmp_path: Path) -> None:
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$0" -m tailrace "Hello?"'
    environment = {**os.environ, "TAILRACE_HOME": str(tmp_path / "home")}
    command = ["/bin/sh", "-c", script, sys.executable]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    gone = "error: the current directory is gone: change to one that is there\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", gone)


# ── how a command is called ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("word", "meant"), [("chta", "chat"), ("sevre", "serve"), ("Runs", "runs"), ("flows", "flow")])
def test_a_mistyped_command_is_no_question(word: str, meant: str) -> None:
    done = tailrace(word, "run")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == f"error: no command {word!r}; did you mean {meant}? chat -q asks it as a question\n"


@pytest.mark.parametrize(
    ("words", "meant"), [(["--verison"], "--version"), (["--modle", "x"], "--model"), (["serve", "--prot=1"], "--port")]
)
def test_a_mistyped_option_is_told_what_was_meant(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(words)
    mistyped = words[-1].partition("=")[0] if words[0] == "serve" else words[0]
    assert capsys.readouterr().err == f"error: no option {mistyped}; did you mean {meant}?\n"


@pytest.mark.parametrize(
    ("words", "meant"), [(["flow", "rnu", "x"], "run"), (["add", "telgram"], "telegram"), (["keys", "lst"], "ls")]
)
def test_a_mistyped_word_of_a_command_is_told_what_was_meant(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(words)
    assert capsys.readouterr().err == f"error: there is no {words[1]!r}; did you mean {meant}?\n"


def test_a_command_without_what_it_needs_shows_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["flow"])
    shown = capsys.readouterr().err
    assert "pause" in shown.split("error: ")[0]
    assert shown.endswith("error: the following arguments are required: COMMAND\n")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("setup", "init"),
        ("login", "init"),
        ("watch", "tail last"),
        ("statsu", "runs"),
        ("hlep", "--help"),
        ("telegram", "add telegram"),
    ],
)
def test_a_command_of_other_programs_is_no_question_where_it_stands_alone(
    word: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main([word])
    expected = f"error: no command {word!r}; did you mean {meant}? chat -q asks it as a question\n"
    assert capsys.readouterr().err == expected
    assert {meant.split()[0] for meant in cli.ELSEWHERE.values()} <= set(cli.all_commands())
    assert cli._with_command(["version"]) == cli._with_command(["-v"]) == ["--version"]
    assert cli._with_command(["setup", "a", "mill"]) == ["chat", "setup", "a", "mill"], "that is a question"


def test_the_log_level_may_stand_before_the_command() -> None:
    assert cli._with_command(["--log-level", "debug", "runs", "--json"]) == ["runs", "--log-level", "debug", "--json"]
    assert cli._with_command(["--log-level=debug", "acp"]) == ["acp", "--log-level=debug"]
    assert cli._with_command(["--log-level", "info", "what runs?"]) == ["chat", "--log-level", "info", "what runs?"]
    assert cli._with_command(["--log-level", "info", "-q", "x"]) == ["chat", "--log-level", "info", "-q", "x"]


@pytest.mark.parametrize("word", ["hello", "why?", "what runs here", "chta and more"])
def test_other_words_are_a_question(word: str) -> None:
    assert cli.near_command(word) is None


@pytest.mark.parametrize(
    ("argv", "command", "question"),
    [([], "chat", None), (["-q", "hi"], "chat", "hi"), (["chat", "-q", "hi"], "chat", "hi"), (["tail"], "tail", None)],
)
def test_alone_it_is_chat(scripted: Scripted, argv: list[str], command: str, question: str | None) -> None:
    assert cli.main(argv) == 0
    [(args, config)] = scripted.seen
    assert (args.command, args.q) == (command, question)
    assert isinstance(config, Config)


def test_a_command_that_reads_no_config_works_beside_a_broken_one(scripted: Scripted, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("][")
    assert cli.main(["decode"]) == 0
    assert cli.main(["chat"]) == 1
    assert [config for _, config in scripted.seen] == [None]


# ── how it ends ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("code", [0, 1, 3])
def test_the_exit_code_is_the_commands_own(scripted: Scripted, code: int) -> None:
    scripted.outcome = code
    assert cli.main([]) == code


def test_J122_an_error_is_one_line_without_control_characters(
    scripted: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted.outcome = TailraceError("no\nsuch \x1b]52;c;x\x07 thing – ünïcode")
    assert cli.main([]) == 1
    assert capsys.readouterr() == ("", "error: no\\nsuch \\x1b]52;c;x\\x07 thing – ünïcode\n")


def test_interrupted(scripted: Scripted) -> None:
    scripted.outcome = KeyboardInterrupt()
    assert cli.main([]) == 130


def test_a_bug_is_not_hidden(scripted: Scripted) -> None:
    scripted.outcome = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        cli.main([])


def test_a_broken_config_is_named_in_one_line(
    scripted: Scripted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text("agent: {}\nstreming: {}\n")
    assert cli.main([]) == 1
    expected = f"error: {tmp_path}/config.yaml:2: streming: unknown key; did you mean streaming?\n"
    assert capsys.readouterr().err == expected


@pytest.mark.skipif(os.name != "posix", reason="needs a shell that closes descriptors")
def test_standard_streams_that_are_closed_lead_nowhere(tmp_path: Path) -> None:
    """No file and no connection gets the number of one: the event loop aborts where it is to close such a one."""
    ask = "import sys, socket; from tailrace.cli.main import main; main(['doctor', '--offline'])"
    run = f'{sys.executable} -c "{ask}; sys.exit(socket.socket().fileno() < 3)" <&- >&- 2>{tmp_path}/stderr'
    done = subprocess.run(
        ["sh", "-c", run], env={**os.environ, "TAILRACE_HOME": str(tmp_path)}, check=False, timeout=60
    )
    assert ((tmp_path / "stderr").read_text(), done.returncode) == ("", 0)


@pytest.mark.skipif(os.name != "posix", reason="needs a shell that closes descriptors")
def test_programs_that_a_command_starts_have_the_standard_streams_too(tmp_path: Path) -> None:
    ask = "import subprocess; from tailrace.cli.main import main; main(['doctor', '--offline'])"
    child = "subprocess.run(['sh', '-c', 'test -e /dev/fd/0 -a -e /dev/fd/1'], check=True)"
    run = f'{sys.executable} -c "{ask}; {child}" <&- >&- 2>{tmp_path}/stderr'
    done = subprocess.run(
        ["sh", "-c", run], env={**os.environ, "TAILRACE_HOME": str(tmp_path)}, check=False, timeout=60
    )
    assert ((tmp_path / "stderr").read_text(), done.returncode) == ("", 0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_one_line() -> None:
    command = [sys.executable, "-m", "tailrace", "doctor", "--offline"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (1, "error: the output cannot be written: No space left on device\n")


def test_a_reader_that_goes_away_is_no_noise(tmp_path: Path) -> None:
    """The pipe is closed before anything is written: no trace, no complaint, not even at shutdown."""
    begin = "import sys; sys.stdin.read(); from tailrace.cli.main import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", begin, "decode", str(tmp_path / "missing"), "--dialect", "chat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.close()  # lets it begin
        err = process.stderr.read().decode()
    assert process.returncode == 1
    assert "Traceback" not in err
    assert "BrokenPipe" not in err
