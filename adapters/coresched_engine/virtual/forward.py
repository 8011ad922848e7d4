"""What one forward of an engine takes on a simulated device, by the formulas of `StepTimes`."""

from dataclasses import dataclass

from coresched.lab.simulator.model import StepTimes


@dataclass
class Forward:
    """What one forward computes, added up row by row."""

    extending: int = 0
    """Rows that compute a chunk of prompt."""
    admitted: int = 0
    """Those of them that have just left the waiting queue, for which this is the first chunk."""
    new_tokens: int = 0
    attended: float = 0.0
    """Sum over new tokens of the tokens that each attends to."""
    decoding: int = 0
    """Sequences that compute one token."""
    context_tokens: int = 0
    """Tokens that they hold in all, the ones computed now included."""

    def extend(self, computed: int, new: int, *, admitted: bool) -> None:
        """A row of ``new`` prompt tokens behind ``computed`` ones, whose keys and values exist."""
        self.extending += 1
        self.admitted += admitted
        self.new_tokens += new
        self.attended += new * (computed + new * 0.5)

    def decode(self, context_tokens: int, sequences: int = 1) -> None:
        """Rows of so many sequences, which hold ``context_tokens`` in all, the ones computed now included."""
        self.decoding += sequences
        self.context_tokens += context_tokens

    def seconds(self, times: StepTimes) -> float:
        """Its duration.

        - Decode of n sequences with S tokens in all:
          ``decode_step + decode_sequences(n) + decode_context_token * S``.
        - Extend of chunks of ``new`` tokens behind ``computed`` ones: ``prefill_batch + prefill_token *
          sum(new) + prefill_attended_token * sum(new * (computed + new / 2)) + prefill_request * admitted``.
          Each new token attends to what is before it, on average half of its own chunk, as in the simulator's
          worker.
        - Mixed: the sum, but the weights are read once: of ``prefill_batch`` and ``decode_step`` only the
          larger.
        - Nothing: 0.
        """
        base = max(
            times.prefill_batch_s if self.extending else 0.0, times.decode_step_s if self.decoding else 0.0
        )
        knee = times.decode_knee_sequences
        return (
            base
            + times.prefill_token_s * self.new_tokens
            + times.prefill_attended_token_s * self.attended
            + times.prefill_request_s * self.admitted
            + times.decode_sequence_s * min(self.decoding, knee)
            + times.decode_sequence_beyond_knee_s * max(0, self.decoding - knee)
            + times.decode_context_token_s * self.context_tokens
        )
