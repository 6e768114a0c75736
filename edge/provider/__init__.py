"""A provider: its HTTP, and what this edge knows of how it has been lately.

``upstream`` calls it (aiohttp, only there), ``encodings`` undoes its compression, ``health`` keeps budgets, breakers and
push-back, ``latencies`` how soon it answers (ddsketch, only there). Before: ``attempts/``. After: ``sse``, ``dialects/``.
"""
