"""The memory of answers: calls told apart by kind and content, kept whole, as a digest or from a journal."""

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from coresched.service.answers import CONTENT_BYTES, AnswerMemory, digest
from coresched.service.refusal import RefusedError
from coresched.v1 import batches_pb2, prefix_pb2, router_pb2
from coresched.v1 import router_pb2 as pb

KINDS = st.sampled_from([pb.RegisterWorkerRequest, pb.RemoveWorkerRequest, pb.DrainWorkerRequest])
WORKERS = st.sampled_from(["a", "b", "w" * (CONTENT_BYTES - 5), "w" * (CONTENT_BYTES - 4), "v" * 400])


def call_of(kind: type[Message], worker: str) -> Message:
    return kind(request_id="i", worker=worker)


def test_a_call_of_the_most_bytes_is_kept_and_one_more_is_not() -> None:
    whole, digested = (call_of(pb.RemoveWorkerRequest, "w" * (CONTENT_BYTES - n)) for n in (5, 4))
    assert (whole.ByteSize(), digested.ByteSize()) == (CONTENT_BYTES, CONTENT_BYTES + 1)


@given(KINDS, WORKERS, KINDS, WORKERS, st.booleans(), st.booleans())
def test_the_same_call_finds_its_answer_and_any_other_is_refused(
    kind: type[Message], worker: str, other_kind: type[Message], other: str, kept: bool, asked: bool
) -> None:
    memory: AnswerMemory[str] = AnswerMemory(4)
    first, second = call_of(kind, worker), call_of(other_kind, other)
    memory.keep("i", digest(first) if kept else first, "answer")
    wanted = digest(second) if asked else second
    if (kind, worker) == (other_kind, other):
        assert memory.find("i", wanted) == "answer"
    else:
        with pytest.raises(RefusedError, match="request_id must be new for each call, got 'i'"):
            memory.find("i", wanted)


def test_no_message_has_a_map() -> None:
    # A map is serialized in any order, and a call that is sent again would look like another one.
    for file in (router_pb2, prefix_pb2, batches_pb2):
        for message in file.DESCRIPTOR.message_types_by_name.values():
            assert not message.nested_types_by_name, message.name
