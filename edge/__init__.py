"""HTTP in, SSE out: the gateway's edge.

The files of this folder are the way of one event; the folders hold what each step needs. Reading order, along one request:

================  ============================================================================================
``app``           wires everything; ``service`` is what stands behind the HTTP surface
``asgi/``         the socket's side: a request's head, browsers, how a stream is sent
``routes/``       the HTTP surface; ``auth``: API keys → tenant, key id, roles; ``tickets``: without a key
``admission/``    who may come in: limits, a fair queue, seats of readers
``idempotency/``  one key and one body are one generation, on all edges
``driver``        one task a generation, to exactly one terminal, and what interrupts it
``driving/``      how it opens, its clocks, how it ends, what follows it
``generation``    its memory: state, window of acknowledged events, readers; ``registry`` has all of this edge
``policy/``       pure: what follows what, after which wait, on which route, at whose expense
``attempts/``     its attempts in flight: begun, held, judged, stopped
``provider/``     a provider's HTTP (aiohttp, only here), and how it has been lately
``sse``           pure: server-sent events, both ways
``dialects/``     what a provider's and a client's protocol mean: pure functions, one file a dialect
``capture``       pure: provider bytes → canonical events of one attempt
``recorder``      publishes: numbers, encodes, appends; the only place where an event becomes visible
``lease``         may what was acknowledged be shown from memory?
``log/``          the log: append, acknowledge, read (aiokafka, only here)
``follow``        the one path by which every client reads: live, resumed, finished
``reading/``      where a reader begins, what it is given, what lies behind the log
``page/``         the page at ``/``; ``clients/``: the client libraries, distributions of their own
``configured``    what an operator says to all edges: keys, what is forgotten
``metrics``       Prometheus; ``clock``: time, ids, randomness
================  ============================================================================================
"""
