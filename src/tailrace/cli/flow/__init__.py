"""Sequences on the terminal: files, the live panel, plain lines, tables and the commands on instances."""
