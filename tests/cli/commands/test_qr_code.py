"""The QR code of a short address, against the numbers of the standard and a reader of its own."""

from __future__ import annotations

from tailrace.cli.setup.qr_code import MAX_BYTES, SIZE, check_words, qr_lines, qr_modules

ADDRESS = "https://t.me/tailrace_bot?start=298629"


def test_the_check_words_are_those_of_a_known_code() -> None:
    """ "HELLO WORLD" in version 1-M, the example of most texts about QR codes."""
    data = bytes([32, 91, 11, 120, 209, 114, 220, 77, 67, 64, 236, 17, 236, 17, 236, 17])
    assert [*check_words(data, 10)] == [196, 35, 39, 119, 235, 215, 231, 226, 93, 23]


def is_fixed(row: int, column: int) -> bool:
    corner = (row < 9 and column < 9) or (row < 9 and column > SIZE - 9) or (row > SIZE - 9 and column < 9)
    return corner or 6 in (row, column) or (24 <= row <= 28 and 24 <= column <= 28)


def read(dark: set[tuple[int, int]]) -> str:
    """As a phone reads it: the mask taken off, the bits in the order of the standard."""
    bits: list[bool] = []
    column, up = SIZE - 1, True
    while column > 0:
        if column == 6:
            column -= 1
        for row in range(SIZE - 1, -1, -1) if up else range(SIZE):
            places = [place for place in (column, column - 1) if not is_fixed(row, place)]
            bits += [((row, place) in dark) != ((row + place) % 2 == 0) for place in places]
        column, up = column - 2, not up
    number = int("".join(str(int(bit)) for bit in bits[:800]), 2).to_bytes(100)
    assert number[80:] == check_words(number[:80], 20)
    assert number[0] >> 4 == 4, "byte mode"
    length = (number[0] & 15) << 4 | number[1] >> 4
    text = bytes((number[1 + at] & 15) << 4 | number[2 + at] >> 4 for at in range(length))
    return text.decode()


def test_a_reader_finds_the_address() -> None:
    for address in (ADDRESS, "https://t.me/a", "x" * MAX_BYTES):
        assert read(qr_modules(address)) == address


def test_the_marks_that_a_camera_looks_for_are_there() -> None:
    dark = qr_modules(ADDRESS)
    for top, left in ((0, 0), (0, SIZE - 7), (SIZE - 7, 0)):
        finder = ["".join("#" if (top + y, left + x) in dark else "." for x in range(7)) for y in range(7)]
        assert finder == ["#######", "#.....#", "#.###.#", "#.###.#", "#.###.#", "#.....#", "#######"]
    # level L with mask 0, read along the row and the column beside the first finder
    columns = [0, 1, 2, 3, 4, 5, 7, 8]
    along = [(8, column) in dark for column in columns] + [(row, 8) in dark for row in (7, 5, 4, 3, 2, 1, 0)]
    assert "".join(str(int(bit)) for bit in along) == "111011111000100"


def test_a_text_that_is_too_long_has_no_code() -> None:
    assert qr_lines("x" * (MAX_BYTES + 1)) == ""
    assert len(qr_lines(ADDRESS).splitlines()) == 19
