"""All that serves requests, in under five minutes: routes, sessions, near reads, Redis, databases, notices, memory."""

from __future__ import annotations

from pathlib import Path

from bench import (
    hot_paths,
    loops,
    memory,
    near_gets,
    on_membership,
    on_notices,
    on_redis,
    on_sessiondata,
    on_web_sessions,
    on_widgets,
    overload,
    staleness,
)
from bench.measure import Effort, Progress, Row

EFFORT = Effort(rounds=7, turn_s=0.15, stage_rounds=10)
TURN_S = 0.35  # of each server in a round
SIGNED_IN = 300
MEMBERS = 200


async def run(folder: Path, effort: Effort, progress: Progress, *, quick: bool) -> list[Row]:
    effort = effort if quick else EFFORT
    return [
        *await on_widgets.throughput(effort, progress, quick=quick, turn_s=TURN_S),
        *await on_web_sessions.throughput(
            folder, effort, progress, quick=quick, peers=False, turn_s=TURN_S, signed_in=SIGNED_IN
        ),
        *await near_gets.run(folder, effort, progress),
        *await staleness.run(progress, quick=quick),
        *await on_redis.compare_on(["redis"], effort, progress, "GET"),
        *await on_membership.throughput(folder, MEMBERS, effort, progress),
        *await on_sessiondata.on_mariadb(effort, progress, quick=quick),
        *await on_notices.throughput(folder, progress, quick=quick),
        *await overload.run(progress, quick=quick),
        *await loops.run(effort, progress, quick=quick),
        *await hot_paths.run(progress, quick=quick),
        *await memory.run(folder, progress, quick=quick),
    ]
