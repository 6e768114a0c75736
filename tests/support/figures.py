"""What a process tells Prometheus, as numbers by name and label. Before: a port in its settings."""

import httpx
from prometheus_client.parser import text_string_to_metric_families


def told(text):
    """Give every sample of an exposition, by its name and the values of its labels."""
    families = text_string_to_metric_families(text)
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


async def figures_at(port):
    """Ask a process for its figures; none where it does not answer yet."""
    async with httpx.AsyncClient(timeout=10) as http:
        try:
            return told((await http.get(f"http://127.0.0.1:{port}/metrics")).text)
        except httpx.TransportError:
            return {}
