"""What harnesses, transports and gateways recorded of a batch, as `record=FOLDER` and `--record` write it."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from coresched.errors import InputError
from coresched.recording.events import EnvironmentStage, Inference
from coresched.recording.merge import RecordedSample, read_recording
from coresched.recording.reader import recording_files
from coresched.trajectory.importers.clock import gap
from coresched.trajectory.importers.document import Document, Head
from coresched.trajectory.importers.recording import Call, Malformed, Sample, Skipped, Stage
from coresched.trajectory.importers.tokens import TokenCounter
from coresched.trajectory.refusal import shown

_BY_BLOCK = "derived: the turn's block in the harness, retries included, for want of a recorded request"
_BY_GAP = (
    "derived: from the end of an answer to the next request, the wait for a slot included, for want of a "
    "harness's recording"
)


class BatchRecording:
    """A trajectory is one life of a sample: the turns whose block ended without an error.

    A sample that was withdrawn, or whose harness was killed, is imported up to there: `meta.completed` is
    false then. A turn is its last answered request, as who was nearest to the worker saw it.
    """

    name = "recording"
    files = "the folder of a `record=FOLDER` or of `coresched gateway --record FOLDER`"
    tokens = "the usage of the answers"
    inference = "exact: from sending the request that was answered to the end of its answer"
    environment = "exact: from the grant of its slot to the end of its block, without the wait for the slot"

    def recognises(self, head: Head) -> bool:
        return {"recording", "source"} <= head.keys()

    def samples(self, document: Document, count: TokenCounter) -> Iterator[Sample | Skipped]:
        folder = Path(document.path)
        if document.kind != "folder":
            raise Malformed(
                "a recording is a folder, in which a turn that several recorded counts once; give that, not "
                "a file in it"
            )
        try:
            recording = read_recording(recording_files(folder))
        except InputError as error:
            raise Malformed(str(error)) from None
        for fault in recording.faults:
            yield Skipped("", fault.removeprefix(f"{folder}/"))
        for sample in recording.samples:
            yield _imported(sample)


def _imported(recorded: RecordedSample) -> Sample | Skipped:
    where = f"sample {shown(recorded.sample)}"
    turns = [event for event in recorded.events if isinstance(event, Inference)]
    if not turns:
        return Skipped(where, "none of its turns was answered")
    calls = []
    for turn in turns:
        if not turn.prompt_tokens or turn.output_tokens is None:
            return Skipped(
                where,
                f"turn {turn.turn + 1} has no usage; record in the transport or gateway too (a stream needs "
                'stream_options={"include_usage": true}), or tell it by turn.usage(...)',
            )
        call = Call(turn.prompt_tokens, turn.output_tokens)
        call.reasoning_tokens = min(turn.reasoning_tokens or 0, turn.output_tokens)
        call.infer_s = round(turn.ended_s - turn.sent_s, 6)
        calls.append(call)
    sample = Sample(recorded.sample, where, calls)
    if recorded.state != "completed":
        sample.meta["completed"] = False
    if recorded.by_block:
        sample.inference = _BY_BLOCK
    if recorded.by_harness:
        _add_stages(sample, recorded)
    else:
        sample.environment = _BY_GAP
        for number, (before, after) in enumerate(pairwise(turns), start=1):
            pause_s = gap(before.ended_s, after.sent_s, f"the pause after turn {number}", sample.anomalies)
            calls[number - 1].stage = Stage(pause_s, "absent" if pause_s is None else "derived")
    return sample


def _add_stages(sample: Sample, recorded: RecordedSample) -> None:
    """Several stages between two turns become one, which lasts as long as all of them."""
    early_s = 0.0
    for event in recorded.events:
        if not isinstance(event, EnvironmentStage):
            continue
        seconds = event.ended_s - event.started_s
        if event.turn is None:
            early_s += seconds
            continue
        call = sample.calls[event.turn]
        if call.stage is None:
            call.stage = Stage(round(seconds, 6), "exact")
        else:
            assert call.stage.duration_s is not None
            call.stage.duration_s = round(call.stage.duration_s + seconds, 6)
            call.stage.n_calls += 1
    if early_s:
        sample.meta["environment_before_first_turn_s"] = round(early_s, 6)
