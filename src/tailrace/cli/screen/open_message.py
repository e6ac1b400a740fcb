"""A message of the model while it grows: its finished blocks, each once, and the one that is open."""

from __future__ import annotations

from tailrace.cli.screen.markdown_blocks import Block, BlockSplitter
from tailrace.cli.screen.painter import BlockPiece, BoxEnd, Piece
from tailrace.cli.screen.sanitize import Sanitizer


class OpenMessage:
    """One message while it grows."""

    def __init__(self, title: str) -> None:
        self._title = title
        self.texts: list[str] = []
        self.splitter = BlockSplitter()
        self.clean = Sanitizer()
        self.begun = False  # anything of it is to be seen
        self.blocks = 0
        self.chars = 0

    def feed(self, text: str) -> list[Piece]:
        text = self.clean.feed(text)
        self.begun = self.begun or bool(text.strip())
        return [self.piece(block) for block in self.splitter.feed(text)]

    def close(self, end: str) -> list[Piece]:
        """The rest of it and the border below it, with this text."""
        pieces: list[Piece] = [self.piece(block) for block in self.splitter.close()]
        return [*pieces, BoxEnd(end)] if self.begun else []

    def piece(self, block: Block) -> BlockPiece:
        self.blocks += 1
        return BlockPiece(block, self.blocks == 1, self._title)

    def moving(self) -> list[Piece]:
        block = self.splitter.open if self.begun else None
        return [BlockPiece(block, not self.blocks, self._title)] if block else []
