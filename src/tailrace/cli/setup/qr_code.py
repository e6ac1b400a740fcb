"""A short address as a QR code that a phone reads from the terminal (ISO/IEC 18004). Pure.

One size is enough for an address: version 4 with error correction L, 78 bytes. The mask is always the first of eight:
readers take any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

SIZE: Final = 33  # modules of version 4
MAX_BYTES: Final = 78
_DATA, _CHECK = 80, 20  # codewords
_FORMAT: Final = 0b111011111000100  # level L, mask 0
_QUIET: Final = 2  # modules around it; four would be by the book, and two are read
_COLOURS: Final = "\x1b[38;5;16;48;5;231m"  # black on white, whatever the terminal's are


def qr_lines(text: str) -> str:
    """The code in lines of half blocks, with their colours; empty for a text that is too long."""
    if len(text.encode()) > MAX_BYTES:
        return ""
    dark = qr_modules(text)
    places = range(-_QUIET, SIZE + _QUIET)
    blocks = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}
    lines = ("".join(blocks[(y, x) in dark, (y + 1, x) in dark] for x in places) for y in places[::2])
    return "\n".join(f"{_COLOURS}{line}\x1b[0m" for line in lines)


def qr_modules(text: str) -> set[tuple[int, int]]:
    """The dark modules, as row and column."""
    fixed = _fixed_modules()
    bits = (byte >> place & 1 for byte in _codewords(text.encode()) for place in range(7, -1, -1))
    dark = {place for place, is_dark in fixed.items() if is_dark}
    for row, column in _data_places(fixed):
        if next(bits, 0) ^ (row + column + 1) % 2:
            dark.add((row, column))
    return dark


def _codewords(data: bytes) -> bytes:
    """The text in byte mode, padded, and its error correction."""
    number = int.from_bytes(bytes([len(data)]) + data) | 4 << 8 * (len(data) + 1)  # the mode is four bits: 0100
    words = (number << 4).to_bytes(len(data) + 2)  # four bits of zero end it
    padding = (bytes([0xEC, 0x11]) * _DATA)[: _DATA - len(words)]
    return words + padding + check_words(words + padding, _CHECK)


def check_words(data: bytes, count: int) -> bytes:
    """The remainder of the division by (x - 2^0)(x - 2^1)… in the field of 256."""
    divisor = [1]
    root = 1
    for _ in range(count):
        divisor = [a ^ _times(b, root) for a, b in zip([*divisor, 0], [0, *divisor], strict=True)]
        root = _times(root, 2)
    rest = [0] * count
    for word in data:
        factor = word ^ rest[0]
        rest = [a ^ _times(b, factor) for a, b in zip([*rest[1:], 0], divisor[1:], strict=True)]
    return bytes(rest)


def _times(a: int, b: int) -> int:
    product = 0
    for place in range(7, -1, -1):
        product = product << 1 ^ (product >> 7) * 0x11D ^ (b >> place & 1) * a
    return product


def _fixed_modules() -> dict[tuple[int, int], bool]:
    """What is the same in every code of this size: finders, timing, alignment and format."""
    end, fixed = SIZE - 1, dict[tuple[int, int], bool]()
    for place in range(SIZE):
        fixed[6, place] = fixed[place, 6] = place % 2 == 0
    for top, left in ((3, 3), (3, end - 3), (end - 3, 3)):
        for row in range(max(0, top - 4), min(end, top + 4) + 1):
            for column in range(max(0, left - 4), min(end, left + 4) + 1):
                fixed[row, column] = max(abs(row - top), abs(column - left)) not in (2, 4)
    for row in range(end - 8, end - 3):
        for column in range(end - 8, end - 3):
            fixed[row, column] = max(abs(row - end + 6), abs(column - end + 6)) != 1
    first = [(row, 8) for row in (0, 1, 2, 3, 4, 5, 7, 8)] + [(8, column) for column in (7, 5, 4, 3, 2, 1, 0)]
    second = [(8, end - number) for number in range(8)] + [(end - 6 + number, 8) for number in range(7)]
    for places in (first, second):
        fixed |= {place: bool(_FORMAT >> number & 1) for number, place in enumerate(places)}
    return fixed | {(end - 7, 8): True}


def _data_places(fixed: dict[tuple[int, int], bool]) -> Iterator[tuple[int, int]]:
    """Two columns at a time from the right, up and down in turns; the column of the timing is left out."""
    for turn, right in enumerate([*range(SIZE - 1, 6, -2), 5, 3, 1]):
        rows = range(SIZE) if turn % 2 else range(SIZE - 1, -1, -1)
        for row in rows:
            yield from ((row, column) for column in (right, right - 1) if (row, column) not in fixed)
