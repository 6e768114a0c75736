"""What the driver of a generation needs beside its attempts: how it opens, its clocks, how it ends, what follows it.

Along its life: ``wishes`` (what the call asked for), ``opening``, ``watch`` (time-outs as deadlines, pure) and ``timers``
(which arm them), ``timing`` (where the time went), ``tools``, ``ending`` (exactly one terminal), ``successor``,
``afterwards`` (how it ended, by the log alone). Before: ``service``. After: ``attempts/``, ``recorder``.
"""
