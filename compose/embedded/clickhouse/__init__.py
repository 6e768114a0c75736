"""ClickHouse without a server: the chDB engine in a process of its own, speaking ClickHouse's HTTP interface.

clickhouse-connect, curl and other HTTP clients work unchanged; a real server replaces it by another URL. Run it with
``python -m compose.embedded.clickhouse --path DIR --port N``; from Python use `process.EmbeddedClickHouse`.

Reading order (a request travels from ``serving`` to ``engine`` and back):

==============  =================================================================================================
``process``     for others: ``command``, ``wait_ready``, ``EmbeddedClickHouse`` (start, stop, kill as a child)
``__main__``    the process: hold the folder, bind, give up the host, open the engine, serve, stop
``holder``      one process per folder: lock, record, leftovers
``sandbox``     Landlock: no file outside of the folder, no program, no TCP connection
``serving``     uvicorn on a bound socket; the order of a stop
``server``      the ASGI application: answers, errors before and within a stream, clients that go away
``asgi``        bodies with a limit, whole responses
``request``     query string, headers, body -> what to run
``guard``       what a statement is, where its data starts, whether it may run; ``lexer`` cuts it into tokens
``sessions``    connections that outlive a request
``execution``   one query in batches: database, settings, external tables, statement
``engine``      the only file that imports chdb: connections, settings, grants
``formats``     which output formats stream, and how; content types
``wire``        gzip, deflate, lz4, zstd, br, and ClickHouse's own compressed frames
``errors``      what clients and operators are told
==============  =================================================================================================

What it is not: a native-protocol server (port 9000), a cluster, a place for users and roles; ``client_protocol_version``
has no effect, so ``DateTime('tz')`` arrives as ``DateTime`` in Native (use ``DateTime64(3, 'tz')`` or UTC); dictionaries,
SQL functions, ``file()``/``url()``/``s3()``, a column called ``file``, and escapes in quoted identifiers are refused.
"""
