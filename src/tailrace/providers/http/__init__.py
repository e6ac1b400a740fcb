"""One model endpoint over HTTP: its address and key, the client, requests and answers."""
