"""The command line: one module per command, thin, imported only when its command is asked for."""
