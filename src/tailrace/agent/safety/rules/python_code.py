"""What a piece of Python code would do, read with Python's own grammar.

Pure. Code that only computes and prints is let through; what starts programs, writes or deletes files, opens a
connection or looks names up by text asks. Importing another module is what running a script of the project is.
"""

from __future__ import annotations

import ast
import warnings

MAX_CHARS = 20_000
_UNSAFE_MODULES = frozenset({
    "subprocess", "shutil", "ctypes", "socket", "pty", "multiprocessing", "importlib", "urllib", "http", "ftplib",
    "smtplib", "requests", "httpx", "aiohttp", "runpy", "code", "codeop", "pickle", "marshal", "builtins",
    "signal", "posix", "_posixsubprocess", "asyncio", "webbrowser", "zipfile", "tarfile", "shelve", "dbm",
    "fileinput", "pip", "setuptools", "distutils", "imp", "pkgutil", "zipimport", "telnetlib", "xmlrpc",
    "paramiko", "fabric", "sh", "pexpect", "psutil", "winreg", "nt", "cffi", "concurrent", "threading", "tempfile",
    "gc", "sqlite3", "logging", "venv", "ensurepip", "site", "resource", "fcntl", "mmap", "select", "selectors",
    "ssl", "timeit", "pdb", "bdb", "trace", "doctest", "profile", "cProfile",
})  # fmt: skip
_SAFE_OF_OS = frozenset({
    "path", "environ", "getcwd", "listdir", "cpu_count", "sep", "name", "getpid", "stat", "walk", "getenv",
    "scandir", "uname", "linesep", "pathsep", "curdir", "lstat", "get_terminal_size", "getppid", "getuid",
    "getloadavg", "fspath", "access", "F_OK", "R_OK", "W_OK", "X_OK",
})  # fmt: skip
_UNSAFE_NAMES = frozenset({
    "exec", "eval", "compile", "__import__", "getattr", "setattr", "delattr", "vars", "globals", "locals",
    "breakpoint", "__builtins__", "__loader__", "memoryview",
})  # fmt: skip
_UNSAFE_ATTRIBUTES = frozenset({
    "unlink", "rmdir", "rmtree", "rename", "renames", "write_text", "write_bytes", "symlink_to", "hardlink_to",
    "chmod", "lchmod", "system", "popen", "kill", "killpg", "write", "writelines", "truncate", "remove_tree",
    "move", "FileIO", "execute", "executemany", "send", "sendall", "connect", "urlopen", "run", "call", "check_output",
})  # fmt: skip


def is_harmless_python(code: str) -> bool:
    """False where the code does more than compute and print, or cannot be read."""
    if len(code) > MAX_CHARS:
        return False
    try:
        with warnings.catch_warnings(action="ignore"):  # of an escape that is none
            tree = ast.parse(code)
        return all(map(_is_harmless, _with_modules(tree)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _with_modules(tree: ast.Module) -> list[ast.AST]:
    nodes = list(ast.walk(tree))
    os_names = {
        alias.asname or "os"
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "os" or (alias.name == "os.path" and alias.asname is None)  # which binds `os`, too
    }
    for node in nodes:
        # Such a name may stand for the module only where one of its safe attributes is taken.
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in os_names:
            if node.attr not in _SAFE_OF_OS:
                raise ValueError(node.attr)
            node.value = ast.Constant(None)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if used & os_names:
        raise ValueError("os")
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    if any(_is_open(node) and id(node) not in called for node in nodes):  # under another name its mode is not seen
        raise ValueError("open")
    return list(ast.walk(tree))


def _is_open(node: ast.AST) -> bool:
    match node:
        case ast.Name(id="open") | ast.Attribute(attr="open") | ast.alias(name="open" | "FileIO" | "fdopen"):
            return True
        case _:
            return False


def _is_harmless(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return all(alias.name.split(".")[0] not in _UNSAFE_MODULES for alias in names)
        case ast.ImportFrom(module=module, names=names):
            root = (module or "").split(".")[0]
            if root == "os":
                return module == "os.path" or all(alias.name in _SAFE_OF_OS for alias in names)
            return root not in _UNSAFE_MODULES and all(alias.name not in ("os", "*") for alias in names)
        case ast.Name(id=name):
            return name not in _UNSAFE_NAMES and not name.startswith("__")
        case ast.Attribute(attr=attr, value=value):
            stdout = isinstance(value, ast.Attribute) and value.attr in ("stdout", "stderr")
            dunder = attr.startswith("__") and attr not in (
                "__version__",
                "__name__",
                "__file__",
                "__doc__",
                "__path__",
            )
            modules = attr in ("os", "sys", "modules", "subprocess", "shutil", "builtins", "_os")
            return not dunder and not modules and (stdout or attr not in _UNSAFE_ATTRIBUTES)
        case ast.Call(func=func):
            return _is_harmless_call(node, func)
        case _:
            return True


def _is_harmless_call(node: ast.Call, func: ast.expr) -> bool:
    name = func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
    if name == "replace" and len(node.args) == 1:  # of a path; of a text it has two
        return False
    if name != "open":
        return True
    given = [
        *node.args[isinstance(func, ast.Name) :][:1],
        *(word.value for word in node.keywords if word.arg in ("mode", "opener", None)),
    ]
    return all(isinstance(mode, ast.Constant) and mode.value in ("r", "rb", "rt") for mode in given)
