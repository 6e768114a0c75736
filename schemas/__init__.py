"""The contract: everything that edge, pipeline, sinks and compose say to one another.

This package imports nothing of ours and does no I/O (``stopping`` ends a process, ``exposition`` tells its figures). Reading order:

========================  =====================================================================================
``errors``                Poison, Transient: the two errors that a shell may settle; anything else is a bug
``ids``                   the generation id (UUIDv7) and the instant in it
``kinds``                 the closed vocabularies: kinds, part types, stages, outcomes
``payloads``              what a kind of record has of its own: the sub-records of the envelope
``attempts``              an attempt's beginning and end
``events``                LogEvent: one provider event = one record = one seq = one frame
``records``               what is derived from the log: attempts, generations, ledger lines; control, claims, config
``outcomes``              finish reasons and error codes: status, retryable, the words for people
``failures``              how a failure looks in each dialect: bodies and error events
``lifecycle``             the states of a generation, as a table
``reading``               the one rule by which every reader delivers, skips, or stops
``digest``                output_hash: one value for live, replay and ClickHouse
``usage``                 providers' usage reports in disjoint buckets; null is never zero
``money``                 exact decimals and how they are written
``prices``                dated prices in exact decimals
``parts``                 records above the size limit: cut and joined
``avro``                  the records' Avro schemas, made from the Python types; committed as ``avro/*.avsc``
``avro_types``            what schema, writer and reader ask of a struct's fields
``avro_writer``           Avro bytes of our own structs, fast
``avro_reader``           our own structs of those bytes, fast
``codec``                 Avro single-object encoding and its schema lookup by fingerprint
``registry``              the schemas topic as a rule: announce what we write, learn what others wrote
``topics``                every topic with its settings and the reason for them
``partition``             which partition a key falls into (murmur2, as Java does it)
``cursor``                the signed SSE id
``signing``               the signing secrets: which is in force, which are retired
``providers``             providers, routes, keys: the sections of the settings that name things
``limits``                the named limits of an edge
``runtime``               time-outs, retries, breaker, hedges: the sections of the settings that the runtime obeys
``stopping``              how a process ends: the deadline of a stop, its exit code
``settings``              one frozen object per process: file, environment, arguments
``exposition``            where a process without an HTTP server tells its figures to Prometheus
``seldom``                what the Kafka client repeats, said now and then: the filter of every process's log
``lines``                 log lines whose loss ends nothing
========================  =====================================================================================

Glossary: see the word table in ``README.md``. ``offset`` is always Kafka's, ``seq`` ours, ``index`` a position in a
list, ``count`` a number of things. ``*_us`` are microseconds, ``*_ms`` milliseconds. Money is ``Decimal``, on the wire
a plain decimal string.
"""
