"""HTTP in, SSE out: the gateway's edge.

Reading order, along one request:

==================  ==========================================================================================
``app``             wires everything; ``routes/`` is the HTTP surface
``connection``      how large and how slow a request's head may be
``auth``            API keys → tenant, key id, roles
``dialects/``       what a provider's and a client's protocol mean: pure functions, one file a dialect
``opening``         what a generation's opening says
``generation``      one generation's memory: state, window of acknowledged events, lease, readers
``recorder``        numbers, encodes, appends; the only place where an event becomes visible
``wishes``          what a call asks of the runtime, and what its key allows
``driver``          one task a generation, to exactly one terminal, and what interrupts it
``race``            its attempts in flight: begun, dropped and ended as the policy says
``policy/``         pure: what follows what, after which wait, on which route, at whose expense
``health``          what this edge knows of its providers: budgets, breakers, push-back
``latencies``       how soon they answer lately (ddsketch, only here)
``announcing``      what an attempt is sent, and what its attempt_start says
``attempt``         one call to one provider, read to its end; ``holding`` keeps what is not committed
``attempt_result``  what it came to; ``stopping``: where we ended it
``ending``          attempt_end, then exactly one terminal
``watch``           pure: the time-outs as deadlines; ``timers`` arms them
``upstream``        the provider's HTTP (aiohttp, only here)
``encodings``       pure: gzip, deflate, br, zstd of a provider, as they come
``capture``         pure: provider bytes → canonical events of one attempt
``sse``             pure: server-sent events, both ways
``log/``            the log: append, acknowledge, read (aiokafka, only here)
``archive``         what ClickHouse holds of a generation (clickhouse-connect, only here)
``archive_rows``    a row as the record that it was made of
``past``            a generation from the archive, and where the log goes on with it
``follow``          the one path by which every client reads: live, resumed, finished
``presented``       what a client shows when it comes back
``resume``          the cursor table: what a presented cursor is answered
``find``            where a generation lies in the log
``emit``            the ASGI response: head, frames, heartbeats, the end
``direct``          a stream's way to the socket past the middlewares
``result``          the finished answer as one body
``history``         all that is held of one generation; ``state`` shows it
``configured``      what an operator says to all edges: keys, what is forgotten
``registry``        the generations of this edge, the memory budget, control records of other edges
``metrics``         Prometheus
==================  ==========================================================================================
"""
