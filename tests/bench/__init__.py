"""The figures of one machine, each next to its reference in the same run: `python -m tests.bench [NAME] [--json]`.

Nothing here is a test: a figure has no right answer. Rounds are interleaved (ours, reference, ours, reference), a figure
is the median of its rounds, its spread their lowest and highest. Reading order:

===================  ================================================================================================
``__main__``         which rows, how often, and where the results go
``row_edge``         CPU and latency per streamed chunk, log included; beside a bare proxy
``row_ttft``         time to the first token, one request at a time; beside the bare proxy
``row_fold``         records per second of a pipeline worker; beside a Faust agent that does nothing
``row_sink``         rows per second of the events sink; beside bare inserts of the same rows
``row_freshness``    terminal published → row visible in ClickHouse
``row_resume``       1000 events again, from each edge, running and finished; beside a consumer per replay
``row_crowded``      the same from the middle of a partition with 1 M records of others; beside an empty one
``row_peers``        the same from two other servers, one at a time and 200 at once
``stack``            the processes that a row needs, started as `tokentrail up` starts them; their CPU
``client``           requests whose answers are kept with their times and read afterwards
``backlog``          very many realistic log records, multiplied from what a real edge wrote
``progress``         how far a consumer group came, and when
``results``          rounds → medians and spreads; the machine
``report``           results as a table, and as docs/benchmarks.md
``provider``         process: the simulator, on a faster event loop
``bare_proxy``       process: the reference of the edge
``noop_faust``       process: the reference of the fold
===================  ================================================================================================
"""
