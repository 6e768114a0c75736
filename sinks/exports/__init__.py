"""Exports: files made from the warehouse. ``bill`` (the order of things) · ``books`` · ``statement`` · ``tally`` · ``render``."""
