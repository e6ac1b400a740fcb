"""The tool that fetches pages, and what it may reach."""
