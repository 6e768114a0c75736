"""Derived records in, ClickHouse rows out: dumb, idempotent, one order.

Reading order:

==================  ================================================================================================
``store``           what a sink asks of a row store, and the ways it can say no
``rows``            what a log record and a dead letter become (pure); helpers for columns
``derived``         what attempts, generations and ledger lines become (pure)
``intake``          bytes → record → row; records in parts are joined (pure)
``batch``           bounds by rows, bytes and age; how far each partition was read (pure)
``loop``            THE order: read → batch → insert → commit
``kafka``           the log, the dead letters, the schemas topic (the only file with aiokafka)
``clickhouse``      the real row store (the only file with clickhouse_connect)
``memory``          the fake, held to the same contract suite
``migrate``         ``sql/NNN_*.sql``, each applied once, checked by hash
``app``             the process: one consumer and one loop per table
``exports``         files for finance
==================  ================================================================================================

A crash anywhere repeats inserts, never loses one: the tables' keys make copies one row, and every shipped view reads
so (``sql/002_views.sql``).
"""
