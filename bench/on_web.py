"""The web benchmarks in under five minutes: hand-written routes, sessions, near reads, overload, loops, memory."""

from __future__ import annotations

from pathlib import Path

from bench import hot_paths, loops, memory, on_web_sessions, on_widgets, overload, staleness
from bench.measure import Effort, Progress, Row

EFFORT = Effort(rounds=9, turn_s=0.25, stage_rounds=10)
TURN_S = 0.5  # of each server in a round


async def run(folder: Path, effort: Effort, progress: Progress, *, quick: bool) -> list[Row]:
    effort = effort if quick else EFFORT
    return [
        *await on_widgets.throughput(effort, progress, quick=quick, turn_s=TURN_S),
        *await on_web_sessions.throughput(folder, effort, progress, quick=quick, peers=False, turn_s=TURN_S),
        *await overload.run(progress, quick=quick),
        *await staleness.run(progress, quick=quick),
        *await loops.run(effort, progress, quick=quick),
        *await hot_paths.run(progress, quick=quick),
        *await memory.run(folder, progress, quick=quick),
    ]
