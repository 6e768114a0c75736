"""Idempotency-Key: one key and one body are one generation, on all edges.

``once`` looks up, claims and reads back; ``claims`` remembers what the claims topic says. Before: ``routes/``. After:
``service`` begins a generation, or ``follow`` reads the one that there is.
"""
