"""Measurements, as ratios within one run. `python -m bench` runs them all, `python -m bench wire` one of them."""
