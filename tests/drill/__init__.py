"""``tokentrail drill resume``: every kind of client, cut at random, over two edges that die and freeze.

Reading order: ``world`` (processes, cuts, chaos) → ``readers`` (the clients) → ``verdict`` (pure: what they hold against
what the log replays) → ``__main__``.
"""
