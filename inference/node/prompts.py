"""Jobs of several prompts: to the engine each is a job of its own, to the gateway all are one.

The id of such a part is the job's with the prompt's number behind it.
"""

from collections.abc import Iterator
from itertools import accumulate, pairwise

import msgspec

from inference.contract.frames import REQUEST_ID_BYTES, Job, Output, Step, Usage
from inference.engines.base import Engine
from inference.errors import JobRefused
from inference.node.jobs import NO_USAGE


class Fan:
    """The parts of one job, how many of their choices have not ended, and the usage of all."""

    __slots__ = ("_usages", "choices_open", "parts", "usage")

    def __init__(self, job: Job) -> None:
        self.parts = list(_parts(job))
        self.choices_open = job.choices
        self.usage = NO_USAGE
        self._usages = [NO_USAGE] * len(self.parts)

    def whole(self, output: Output) -> Output:
        """An output of a part as one of the job."""
        place, usage = output.request[REQUEST_ID_BYTES], output.usage
        before, self._usages[place] = self._usages[place], usage
        self.choices_open -= output.finish is not None
        self.usage = Usage(
            **{
                field: getattr(self.usage, field) + getattr(usage, field) - getattr(before, field)
                for field in ("prompt_tokens", "cached_tokens", "completion_tokens")
            }
        )
        return msgspec.structs.replace(
            output,
            request=output.request[:REQUEST_ID_BYTES],
            choice=place * self.parts[place].sampling.n + output.choice,
            usage=self.usage,
        )


class Prompts:
    """Stands between a node and its engine; a job of one prompt passes as it is."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._fans: dict[bytes, Fan] = {}

    def submit(self, job: Job) -> None:
        """Raises `JobRefused`; the engine has no part of the job then."""
        if not (job.lengths and job.tokens):
            self._engine.submit(job)
            return
        fan = self._fans[job.request] = Fan(job)
        try:
            for part in fan.parts:
                self._engine.submit(part)
        except JobRefused:
            self.refused(job.request)
            raise

    def cancel(self, request: bytes) -> None:
        fan = self._fans.get(request)
        for each in [request] if fan is None else [part.request for part in fan.parts]:
            self._engine.cancel(each)

    def whole(self, step: Step) -> Step:
        """The step with jobs in place of their parts; those of a refused job are nobody's."""
        if not self._fans:
            return step
        return msgspec.structs.replace(step, outputs=[self._whole(each) for each in step.outputs])

    def refused(self, request: bytes) -> bytes:
        """The job that is refused with a part, which engines do before any of them has begun."""
        request = request[:REQUEST_ID_BYTES]
        if request in self._fans:
            self.cancel(request)
            del self._fans[request]
        return request

    def _whole(self, output: Output) -> Output:
        fan = self._fans.get(output.request[:REQUEST_ID_BYTES])
        if fan is None:
            return output
        output = fan.whole(output)
        if not fan.choices_open:
            del self._fans[output.request]
        return output


def _parts(job: Job) -> Iterator[Job]:
    for place, (begin, end) in enumerate(pairwise(accumulate(job.lengths, initial=0))):
        yield msgspec.structs.replace(
            job,
            request=job.request + bytes([place]),
            tokens=job.tokens[begin:end],
            hashes=b"",
            lengths=[],
        )
