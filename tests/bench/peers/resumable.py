"""`python resumable.py PORT REDIS_PORT`: fastapi-resumable-stream as its README says, in an environment of its own.

POST /streams/NAME takes a JSON list of events and says them; GET /streams/NAME?after=N says them again.
Before: `row_peers`. After: Redis.
"""

import sys

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi_resumable_stream import ResumableStream, streaming_response
from redis.asyncio import Redis

PORT, REDIS_PORT = (int(word) for word in sys.argv[1:3])
app = FastAPI()
stream = ResumableStream(Redis(host="127.0.0.1", port=REDIS_PORT, max_connections=1000))
"""Each reader takes two connections; at the client's own limit a storm of 200 is answered with 500."""


@app.post("/streams/{name}")
async def begin(name: str, request: Request) -> Response:
    """Say these events."""
    events = await request.json()

    async def producer():
        for event in events:
            yield f"data: {event}\n\n"

    return streaming_response(await stream.start(name, producer))


@app.get("/streams/{name}")
async def again(name: str, after: int = 0) -> Response:
    """Say what comes after so many."""
    found = await stream.resume(name, after=after)
    return Response(status_code=404) if found is None else streaming_response(found)


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
