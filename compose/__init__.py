"""How the parts run together: the operator's command line, the supervised stack, and what it stands on.

This is the composition root: it may import ``schemas`` (the contract), and ``sinks`` for SQL, exports and migrations;
edges, pipeline and sinks it starts as processes of their own. Reading order:

================  =============================================================================================
``cli``           the command ``tokentrail``; one file per command in ``commands``
``target``        which stack a command speaks to: flags, environment, or the state of a running ``up``
``stack``         what processes a stack consists of, with ports and environment
``supervisor``    starts them in order, starts them again, stops them in reverse; takes over from a dead one
``state``         the stack's folder: ``stack.json``, ports, keys, configuration
``topics``        ``topics apply``: what to create, alter, refuse
``kafka``         the only folder here that imports aiokafka
``tail``          watch a stream from the log
``keys``          API keys of running edges, on the config topic
``forgetting``    erase what a generation said, everywhere
``demo``          the whole path once, with proof
``doctor``        checks of a running stack
``embedded``      a real Kafka, a real ClickHouse engine, a scripted provider
================  =============================================================================================
"""
