"""read_file, write_file and patch as the model meets them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tailrace.messages import FileChange
from tailrace.ports import Effect, Tool, ToolOutcome
from tailrace.tools import patch as patching
from tailrace.tools import read_file as reading
from tailrace.tools.patch import Patch
from tailrace.tools.paths import write_whole
from tailrace.tools.read_file import ReadFile
from tailrace.tools.write_file import WriteFile
from tools.tool_context import Workplace


async def read(here: Workplace, path: str = "a", **args: Any) -> ToolOutcome:
    return await ReadFile().run({"path": path, **args}, here)


async def write(here: Workplace, path: str, content: str) -> ToolOutcome:
    return await WriteFile().run({"path": path, "content": content}, here)


async def patch(here: Workplace, old: str, new: str, **args: Any) -> ToolOutcome:
    return await Patch().run({"path": "a", "old": old, "new": new, **args}, here)


def bad(output: str) -> ToolOutcome:
    return ToolOutcome(output, ok=False)


@pytest.mark.parametrize(
    ("tool", "args"),
    [(ReadFile(), {}), (WriteFile(), {"content": "x"}), (Patch(), {"old": "keep", "new": "x"})],
    ids=["read_file", "write_file", "patch"],
)
async def test_J125_every_file_tool_refuses_what_lies_outside(
    here: Workplace, tmp_path: Path, tool: Tool, args: dict[str, Any]
) -> None:
    (tmp_path / "secret").write_text("keep", encoding="utf-8")
    (here.directory / "link").symlink_to(tmp_path / "secret")
    for path in ("../secret", "link", str(tmp_path / "secret")):
        outcome = await tool.run({"path": path, **args}, here)
        assert not outcome.ok
        assert "lies outside" in outcome.output
    assert (tmp_path / "secret").read_text(encoding="utf-8") == "keep"


def test_what_they_say_of_themselves() -> None:
    tools: list[Tool] = [ReadFile(), WriteFile(), Patch()]
    assert [(t.repeatable, t.parallel) for t in tools] == [(True, True), (True, False), (False, False)]
    assert [t.effect({"path": "x"}) for t in tools] == [Effect(), Effect("write", "x"), Effect("write", "x")]
    assert [t.preview({"path": "x/y", "content": "no"}) for t in tools] == ["x/y"] * 3
    assert [t.spec.parameters["required"] for t in tools] == [["path"], ["path", "content"], ["path", "old", "new"]]
    assert all(t.spec.parameters["additionalProperties"] is False for t in tools)
    assert "there is no field 'replaceAll'" in Patch().invalid(
        {"path": "a", "old": "b", "new": "c", "replaceAll": True}
    )
    assert "new: is missing" in Patch().invalid({"path": "a", "old": "b"})


# ── read_file ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_lines_are_numbered(here: Workplace) -> None:
    here.write("a", "one\ntwo\r\n\nfour")
    assert await read(here) == ToolOutcome("     1\tone\n     2\ttwo\n     3\t\n     4\tfour")
    assert await read(here, offset=2, limit=1) == ToolOutcome("     2\ttwo\n… more lines follow; read on with offset=3")
    assert await read(here, offset=4, limit=1) == ToolOutcome("     4\tfour")
    assert await read(here, offset=9) == ToolOutcome("(the file ends at line 4)")


async def test_A03_only_line_ends_end_lines(here: Workplace) -> None:
    here.write("a", "one\u2028still one\x0cand\x85on\ntwo")
    assert (await read(here)).output == "     1\tone\u2028still one\x0cand\x85on\n     2\ttwo"


async def test_files_that_are_no_plain_text(here: Workplace) -> None:
    here.write("a", b"PNG\0\1")
    assert await read(here) == bad("a is a binary file of 5 bytes")
    here.write("a", "")
    assert await read(here) == ToolOutcome("(the file is empty)")
    here.write("a", b"caf\xe9")
    assert (await read(here)).output == "     1\tcaf\ufffd"
    here.write("a", "grüße\nzwei".encode("utf-16"))
    assert (await read(here)).output == "     1\tgrüße\n     2\tzwei"
    here.write("a", b"\xef\xbb\xbfmarked")
    assert (await read(here)).output == "     1\tmarked"
    assert await read(here, "none") == bad("none: no such file or directory")


async def test_long_lines_and_long_files_are_cut_and_say_so(here: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    here.write("a", "x" * 5000 + "\nshort\n" + "y" * reading.MAX_LINE_CHARS + "\n")
    long, short, exact = (await read(here)).output.split("\n")
    assert long == "     1\t" + "x" * 2000 + " … 3000 more characters"
    assert short == "     2\tshort"
    assert exact == "     3\t" + "y" * 2000
    monkeypatch.setattr(reading, "MAX_OUTPUT_CHARS", 5000)
    here.write("a", "z" * 1990 + "\n" + "z" * 1990 + "\n" + "z" * 1990 + "\nrest\n")
    assert (await read(here)).output.endswith("… more lines follow; read on with offset=4")


async def test_two_reads_side_by_side(here: Workplace) -> None:
    here.write("a", "one")
    here.write("b", "two")
    outcomes = await asyncio.gather(read(here, "a"), read(here, "b"))
    assert [outcome.output for outcome in outcomes] == ["     1\tone", "     1\ttwo"]


# ── write_file ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_file_is_made_and_replaced(here: Workplace) -> None:
    write = WriteFile()
    assert (await write.run({"path": "d/a", "content": "eins\nzwei\n"}, here)).output == "Created d/a (2 lines)"
    assert (await write.run({"path": "d/a", "content": "drei"}, here)).output == "Replaced d/a (1 line)"
    assert (here.directory / "d/a").read_bytes() == b"drei"
    assert await write.run({"path": "d", "content": ""}, here) == bad("d is a directory")
    assert await write.run({"path": "d/a/b", "content": ""}, here) == bad("d/a/b: not a directory")
    assert (await write.run({"path": "e", "content": ""}, here)).output == "Created e (0 lines)"
    assert not (await write.run({"path": "f", "content": "\ud800"}, here)).ok
    assert not (here.directory / "f").exists()


async def test_line_ends_are_written_as_given(here: Workplace) -> None:
    await WriteFile().run({"path": "a", "content": "a\r\nb\n"}, here)
    assert (here.directory / "a").read_bytes() == b"a\r\nb\n"


# ── patch ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_one_piece_is_replaced_and_the_change_is_shown(here: Workplace) -> None:
    here.write("a", "1\n2\n3\n4\n5\n6\n7\n")
    diff = " 2\n 3\n-4\n-5\n+vier\n+fünf\n 6\n 7"
    assert await patch(here, "4\n5", "vier\nfünf") == ToolOutcome(
        f"a, from line 2:\n{diff}", change=FileChange("a", 2, 2, diff, line=2)
    )
    assert (here.directory / "a").read_text(encoding="utf-8") == "1\n2\n3\nvier\nfünf\n6\n7\n"


async def test_changes_at_the_ends_of_the_file_are_shown(here: Workplace) -> None:
    here.write("a", "only")
    assert (await patch(here, "only", "only\n")).output == "a, from line 1:\n only\n+"
    assert (await patch(here, "only\n", "first\nonly\n")).output == "a, from line 1:\n+first\n only\n "
    assert (await patch(here, "first\nonly\n", "")).output == "a, from line 1:\n-first\n-only\n "
    assert (here.directory / "a").read_bytes() == b""


async def test_the_piece_must_be_there_and_be_the_only_one(here: Workplace) -> None:
    here.write("a", "def one():\n    pass\ndef two():\n    pass\n")
    assert await patch(here, "    pass", "x") == bad(
        "a contains that text 2 times; give more of it, or set replace_all"
    )
    assert await patch(here, "def too():", "x") == bad(
        "a does not contain that text. The closest line is 3: 'def two():'"
    )
    assert await patch(here, "zzzzzz", "x") == bad("a does not contain that text.")
    assert await patch(here, "def one", "def one") == bad("old and new are the same text; nothing was changed")
    assert (await patch(here, "    pass", "    ...", replace_all=True)).ok
    assert (here.directory / "a").read_text() == "def one():\n    ...\ndef two():\n    ...\n"


async def test_plain_line_ends_match_those_of_windows(here: Workplace) -> None:
    here.write("a", "one\r\ntwo\r\nthree\r\n")
    outcome = await patch(here, "one\ntwo", "1\n2")
    assert outcome.output == "a, from line 1:\n-one\n-two\n+1\n+2\n three\n "
    assert (here.directory / "a").read_bytes() == b"1\r\n2\r\nthree\r\n"
    await patch(here, "1\r\n2\nthree", "x\r\ny\nz")
    assert (here.directory / "a").read_bytes() == b"x\r\ny\r\nz\r\n"


async def test_what_cannot_be_patched(here: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await patch(here, "x", "y") == bad("a: no such file or directory")
    here.write("a", b"\xff\xfe x")
    assert await patch(here, "x", "y") == bad("a is not UTF-8 text")
    monkeypatch.setattr(patching, "MAX_FILE_BYTES", 10)
    here.write("a", "x" * 11)
    assert await patch(here, "x", "y") == bad("a is larger than 10 bytes")


async def test_a_change_all_over_a_long_file_is_summed_up(here: Workplace) -> None:
    here.write("a", "x\n" * 20_000)
    assert (await patch(here, "x", "y", replace_all=True)).output == "Changed a between lines 1 and 20000"


async def test_a_file_changed_by_somebody_else_meanwhile_is_left_alone(
    here: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = here.write("a", "old text")

    def slow(*args: Any, **kwargs: Any) -> bool:
        file.write_text("what the user typed", encoding="utf-8")
        return write_whole(*args, **kwargs)

    monkeypatch.setattr(patching, "write_whole", slow)
    outcome = await patch(here, "old", "new")
    assert outcome == bad("a was changed by another program meanwhile; read it again")
    assert file.read_text(encoding="utf-8") == "what the user typed"


# ── what the user is shown of a change ───────────────────────────────────────────────────────────────────────


async def test_a_written_file_comes_with_what_changed_in_it(here: Workplace) -> None:
    made = await write(here, "new.txt", "one\ntwo\n")
    assert made.change == FileChange("new.txt", 2, 0, "+one\n+two", created=True)
    lines = [f"line {number}" for number in range(20)]
    await write(here, "a.txt", "\n".join(lines))
    lines[9:11] = ["changed"]
    replaced = await write(here, "a.txt", "\n".join(lines))
    diff = " line 7\n line 8\n-line 9\n-line 10\n+changed\n line 11\n line 12"
    assert replaced.change == FileChange("a.txt", 1, 2, diff, line=8)
    same = await write(here, "a.txt", "\n".join(lines))
    assert same.change == FileChange("a.txt")


async def test_the_last_line_end_is_no_line_of_its_own(here: Workplace) -> None:
    here.write("a.txt", "alpha\nbeta\n")
    shorter = await write(here, "a.txt", "gone")
    assert shorter.change == FileChange("a.txt", 1, 2, "-alpha\n-beta\n+gone")
    longer = await write(here, "a.txt", "alpha\nbeta\n")
    assert longer.change == FileChange("a.txt", 2, 1, "-gone\n+alpha\n+beta")
    emptied = await write(here, "a.txt", "")
    assert emptied.change is not None
    assert (emptied.change.added, emptied.change.removed) == (0, 2)
    here.write("a.txt", "alpha\n")
    alone = await write(here, "a.txt", "alpha")
    assert alone.change is not None
    assert alone.change.removed == 1


async def test_a_patch_counts_its_lines_and_a_binary_file_has_no_diff(here: Workplace) -> None:
    here.write("a", "x\ny\n")
    done = await patch(here, "x", "z")
    assert done.change == FileChange("a", 1, 1, "-x\n+z\n y\n ")
    (here.directory / "b").write_bytes(b"\0\1")
    assert (await write(here, "b", "text")).change is None
