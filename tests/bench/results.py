"""Rounds → one row of results: medians, and beside them the lowest and highest round. What the machine is.

Pure, but for reading the machine. Before: the rows. After: `report`.
"""

import datetime as dt
import os
import platform
import statistics
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Round = Mapping[str, Mapping[str, float]]
"""One round's figures: who was measured → name of the figure → value. The name ends in its unit."""
Row = dict[str, Any]
_DIGITS = 4


def row_of(bench: str, rounds: Sequence[Round], **beside: int | str) -> Row:
    """One row: each figure's median under its owner, and `spread` with [lowest, highest] in the same shape."""
    row: Row = {"bench": bench, **beside, "rounds": len(rounds)}
    spread: dict[str, dict[str, list[float]]] = {}
    for who, figures in rounds[0].items():
        columns = {name: [one[who][name] for one in rounds] for name in figures}
        row[who] = {name: rounded(statistics.median(values)) for name, values in columns.items()}
        spread[who] = {name: [rounded(min(values)), rounded(max(values))] for name, values in columns.items()}
    return row | {"spread": spread}


def rounded(value: float) -> float:
    """Four significant digits: more than any figure here is good for."""
    return float(f"{value:.{_DIGITS}g}")


def machine() -> Row:
    """What the figures were taken on, and how busy it was before."""
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")]
    meminfo = Path("/proc/meminfo").read_text().split()
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "cpu": models[0] if models else platform.machine(),
        "memory_gib": round(int(meminfo[meminfo.index("MemTotal:") + 1]) / 2**20, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_version()} ({'an' if _optimised() else 'not an'} optimised build)",
        "load_before": round(os.getloadavg()[0], 2),
        "at": dt.datetime.now(dt.UTC).isoformat(timespec="minutes"),
    }


def _optimised() -> bool:
    """Whether this Python was compiled with profile-guided optimisation, as `requirements/find-python` judges it."""
    return sys.base_prefix == "/usr" or "--enable-optimizations" in (
        sysconfig.get_config_var("CONFIG_ARGS") or ""
    )
