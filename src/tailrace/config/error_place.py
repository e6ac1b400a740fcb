"""Where in the config file the key of an error stands, for errors that are found after the file was loaded.

For people who can open the file: a command's output, a log, an editor. What clients of the server are told names no
path of this machine. The file is read once more, and only when there is something to say.
"""

from __future__ import annotations

from tailrace.config.load import CONFIG_FILE, Config
from tailrace.errors import ConfigError


def with_place(problem: ConfigError, config: Config) -> ConfigError:
    """The same error with the file and the line; as it is where it names a file already, or where neither its key nor
    the section of that key is in the config file."""
    file = config.home / CONFIG_FILE
    if problem.file or not problem.key:
        return problem
    try:
        if not file.is_file():  # a pipe has been read, and may have no writer any more
            return problem
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return problem

    from tailrace.config.key_lines import line_about  # a start without a file needs no YAML parser

    try:
        line = line_about(problem, text, str(file))
    except ConfigError:  # the file was changed since
        return problem
    return ConfigError(problem.message, file=str(file), line=line, key=problem.key) if line else problem
