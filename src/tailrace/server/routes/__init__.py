"""The routes of our own API and the web page."""
