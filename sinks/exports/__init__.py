"""Exports: files made from the warehouse. ``bill`` (the order of things) · ``books`` · ``questions`` · ``statement`` · ``tally`` · ``render`` · ``focus``."""
