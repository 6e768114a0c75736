"""What is decided about the attempts of a generation: pure, times and facts are arguments.

Read ``chain`` first: (chain, event, world) → (chain, actions). ``retries`` says which failure may be followed by what and
after which wait, ``routes`` in which order the ways of a model are tried, ``budgets`` and ``breaker`` what a provider's
record allows, ``succession`` what a broken answer may be followed by, ``hedging`` when a second attempt may run beside the first, ``changes`` what a changed prompt looks like.
What all generations of an edge share is kept in ``edge.provider.health``. Before: ``capture``. After: ``race`` acts.
"""
