"""`tailrace demo`: faults on this machine, with a real server and a provider that misbehaves on purpose."""
