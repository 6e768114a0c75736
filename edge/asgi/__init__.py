"""The socket's side of a request: what comes before its route and what a stream is sent through.

``connection`` bounds a request's head, ``browser`` answers what browsers ask beside it, ``direct`` leads a stream past the
framework's middlewares, ``emit`` is the stream: head, frames, heartbeats, the end. Before: ``app``. After: ``routes/``;
``emit`` sends what ``follow`` gives.
"""
