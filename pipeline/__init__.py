"""Log in, derived records out. ``python -m pipeline`` runs one worker; reading order:

==================  ================================================================================================
``app``             the Faust worker: the fold as a service inside it, billing as an agent; whatever fails ends it
``fold_service``    the shell of the fold: read → fold → send → commit, rebalances, errors
``finder``          the shell of the orphan finder, beside it
``fold``            PURE, one partition: which generation opens, closes, is kept aside; how far a commit may go
``strays``          records of generations that are not open
``generation``      one generation: seq order, copies, conflicts, the first terminal
``sums``            what is kept of its records
``stalls``          gaps and stalls of one attempt
``timings``         the numbers of the row, by definition
``lineage``         how attempts and generations came from one another
``finalize``        the row
``orphans``         PURE: when a generation is lost, and the records that say so
``wellformed``      fields that cannot be
``dead_letters``    what becomes of a record that can never be processed
``schema_topic``    announcing and learning schemas; ``schema_wait``: a partition that waits for one
``billing``         PURE: the ledger lines of an attempt, with ``charging``, ``costs``, ``tariff``
``billing_agent``   the shell of billing
``kafka``           the only folder that imports aiokafka
``slots``, ``logs`` the worker's stable name; its log lines
==================  ================================================================================================

The log is the state: no table, no changelog. A worker commits, per partition, no further than the first record of the
oldest open generation, with P in the commit's metadata (``v1:<P>``): all outputs of records below P are acknowledged.
A restart reads from the commit, rebuilds below P, and emits from P on.
"""
