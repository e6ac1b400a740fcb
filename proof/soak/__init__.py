"""A server under mixed load with faults for as long as you like: what grows, what leaks, what is late, what is wrong.

`python -m proof.soak --minutes 30 --report docs/soak.svg`; see `docs/reliability.md`.
"""

from __future__ import annotations
