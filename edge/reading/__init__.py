"""What reading a generation takes beside the one path, ``follow``.

Where a reader begins: ``presented`` (what it shows), ``resume`` (the cursor table), ``find`` (where it lies in the log),
``searches`` (whose turn it is to look there), ``acks`` (what it says that it has). What it is given: ``decode``, ``replays`` (shared by all readers), ``frames`` (bytes of
its dialect). What lies behind the log: ``archive``, ``archive_rows``, ``past``. A generation as a whole: ``readings`` (whose
turn it is), ``history``, ``state``, ``result``. Before: ``routes/``, ``asgi.emit``. After: ``log/``, ClickHouse.
"""
