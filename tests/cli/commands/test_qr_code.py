"""The QR code of an address, as a camera sees it."""

from __future__ import annotations

import re

import segno

from tailrace.cli.setup.qr_code import qr_lines

ADDRESS = "https://t.me/tailrace_bot?start=298629"


def test_the_lines_show_the_code_of_the_address() -> None:
    lines = re.sub(r"\x1b\[[\d;]*m", "", qr_lines(ADDRESS)).splitlines()
    dark = [[module not in white for module in line] for line in lines for white in ("▀█", "▄█")]
    code = [[bool(module) for module in row] for row in segno.make_qr(ADDRESS, error="l").matrix_iter(border=2)]
    assert dark[: len(code)] == code


def test_the_code_is_white_on_black_whatever_the_terminal_s_colours_are() -> None:
    assert all(line.startswith("\x1b[38;5;231;48;5;16m") for line in qr_lines(ADDRESS).splitlines())
