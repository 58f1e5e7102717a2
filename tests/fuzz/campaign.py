"""Cases until a time: drawn from a seed, played in batches; those that fail are made small."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.case import FOLDER, Case, keep
from tests.fuzz.frames import draw_frames
from tests.fuzz.ground import Ground, probing
from tests.fuzz.wire import draw_request

REQUESTS_AT_ONCE = 4
REQUEST_CASES, LINK_CASES = 24, 6
# Between two looks at what is left open, at memory and at roll-ups.
STILL_EVERY_S = 10.0
SHRINK_S_MAX = 90.0
# Of a failure that does not come again, the last cases before it.
KEPT_MAX = 12


@dataclass
class Found:
    """What a campaign has done; `kept` is the file of the case that failed, where one did."""

    seed: int
    requests: int = 0
    links: int = 0
    probes: int = 0
    problem: str = ""
    kept: str = ""


async def campaign(ground: Ground, seed: int, seconds: float, folder: Path = FOLDER) -> Found:
    """Fuzz for so long, or until something is wrong."""
    chance = random.Random(seed)
    found = Found(seed)
    until_s = time.monotonic() + seconds
    async with probing(ground):
        # The first batch warms up what is measured.
        recent = await batch(ground, chance, found)
        await ground.still()
        still_s = time.monotonic()
        while time.monotonic() < until_s and not ground.problems:
            recent += await batch(ground, chance, found)
            if time.monotonic() - still_s > STILL_EVERY_S and not ground.problems:
                await ground.still()
                still_s = time.monotonic()
                recent = recent[-KEPT_MAX:]
        if not ground.problems:
            await ground.still()
    found.probes = len(ground.probes)
    if not ground.problems:
        await ground.check_money()
    if ground.problems:
        found.problem = ground.problems[0]
        found.kept = str(keep(await shrink(ground, recent, found.problem), folder))
    return found


async def batch(ground: Ground, chance: random.Random, found: Found) -> list[Case]:
    """Some requests and some links; ends early where something is wrong."""
    cases = [
        Case.of("v1", [draw_request(chance) for _ in range(REQUESTS_AT_ONCE)])
        for _ in range(REQUEST_CASES // REQUESTS_AT_ONCE)
    ]
    cases += [Case.of("fleet", draw_frames(chance)) for _ in range(LINK_CASES)]
    for number, case in enumerate(cases):
        await ground.play(case)
        ground.look()
        if ground.problems:
            return cases[: number + 1]
    found.requests += REQUEST_CASES
    found.links += LINK_CASES
    await ground.forgive()
    return cases


async def shrink(ground: Ground, cases: list[Case], problem: str) -> list[Case]:
    """The last case alone with as few messages as still fail; or the last few where it does not."""
    last = cases[-1]
    until_s = time.monotonic() + SHRINK_S_MAX
    if await fails(ground, Case(door=last.door, messages=[])) or not await fails(ground, last):
        last.found = problem
        return cases[-KEPT_MAX:]
    messages = last.messages
    place = 0
    while place < len(messages) and len(messages) > 1 and time.monotonic() < until_s:
        fewer = messages[:place] + messages[place + 1 :]
        if await fails(ground, Case(door=last.door, messages=fewer)):
            messages = fewer
        else:
            place += 1
    return [Case(door=last.door, messages=messages, found=problem)]


async def fails(ground: Ground, case: Case) -> bool:
    """Whether something is wrong once this was played, and the ground was still again."""
    ground.problems.clear()
    await ground.forgive()
    async with probing(ground):
        await ground.play(case)
        await ground.still()
    ground.look()
    return bool(ground.problems)
