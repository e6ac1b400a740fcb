"""What a vendor's API refuses in a request, in its own words, and what it recognises as its own when it comes back."""

from __future__ import annotations

from tailrace.testing.provider.strict.vendor_api import Strict, VendorApi

__all__ = ["Strict", "VendorApi"]
