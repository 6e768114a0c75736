"""An HTTP transport that cuts a stream behind its n-th event and goes on at another edge: what a client library does."""

from httpx_sse._decoders import SSEDecoder


class Splice:
    """Passes everything on; of a streamed POST only so many events, the rest by Last-Event-ID from elsewhere.

    ``before`` and ``behind`` are what came on the first connection and on the second, in bytes of whole events. ``http``
    is the HTTP library that the SDK above is made with: they differ by name only.
    """

    def __init__(self, http, cut_after, elsewhere, dialect, mode=None):
        self.http = http
        self.cut_after = cut_after
        self.elsewhere = elsewhere
        self.dialect = dialect
        self.mode = mode
        self.before = self.behind = b""
        self._real = http.AsyncHTTPTransport(verify=False)

    def client(self):
        """Give a client of the library on this transport."""
        splice = self

        class Transport(self.http.AsyncBaseTransport):
            async def handle_async_request(self, request):
                return await splice.handle(request)

            async def aclose(self):
                await splice._real.aclose()

        return self.http.AsyncClient(transport=Transport())

    async def handle(self, request):
        """Answer a request of the SDK."""
        answer = await self._real.handle_async_request(request)
        if "text/event-stream" not in answer.headers.get("content-type", ""):
            return answer
        parts = self._spliced(request, answer)

        class Body(self.http.AsyncByteStream):
            def __aiter__(self):
                return parts

        return self.http.Response(answer.status_code, headers=answer.headers, stream=Body())

    async def _spliced(self, request, answer):
        kept, last_id = 0, None
        async for frame in frames_of(answer.aiter_raw()):
            last_id = id_of(frame) or last_id
            self.before += frame
            kept += id_of(frame) is not None
            if kept >= self.cut_after:
                break
        await answer.aclose()
        if self.mode is None:
            yield self.before
        generation_id = answer.headers["x-generation-id"]
        url = f"{self.elsewhere}/v1/generations/{generation_id}/events?dialect={self.dialect}"
        headers = {k: v for k, v in request.headers.items() if k in ("authorization", "x-api-key")}
        headers["last-event-id"] = last_id
        if self.mode is not None:
            headers["x-resume-mode"] = self.mode
        again = await self._real.handle_async_request(self.http.Request("GET", url, headers=headers))
        async for frame in frames_of(again.aiter_raw()):
            self.behind += frame
            yield frame
        await again.aclose()


async def frames_of(chunks):
    """Cut a body into whole frames (comments among them), each with the blank line that ends it."""
    rest = b""
    async for chunk in chunks:
        rest += chunk
        while b"\n\n" in rest:
            frame, _, rest = rest.partition(b"\n\n")
            yield frame + b"\n\n"
    if rest:
        yield rest


def id_of(frame):
    """Give the id of a frame, None for one without."""
    decoder, found = SSEDecoder(), None
    for line in frame.decode().split("\n"):
        event = decoder.decode(line)
        found = event.id if event is not None and b"\nid:" in b"\n" + frame else found
    return found or None
