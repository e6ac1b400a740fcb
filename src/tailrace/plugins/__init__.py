"""Integrations: what each says of itself (`Integration`), and which are installed (`installed`).

A chat platform, a protocol or a store is a package with one entry point in the group `tailrace.integrations`. Ours and
other people's are found in the same way. This room knows none of them by name.
"""

from __future__ import annotations

from tailrace.plugins.integration import BusKind as BusKind
from tailrace.plugins.integration import CliCommand as CliCommand
from tailrace.plugins.integration import Integration as Integration
from tailrace.plugins.integration import StoreKind as StoreKind
