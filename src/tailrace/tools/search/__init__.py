"""The tool that finds text in files, and what ignore rules leave out."""
