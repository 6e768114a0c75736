"""Who may come in: before anything of a call is in the log, and before a reader's first byte.

``gate`` is where a call waits, ``queueing`` (pure) whose turn it is, ``seats`` how many may read at once, ``holdings`` what
one generation holds of this edge until it gives it back. Before: ``routes/``. After: ``driver``.
"""
