"""What a fake of a chat platform is made of: real loopback sockets that fail as told, and an inbox that collects."""
