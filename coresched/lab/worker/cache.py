"""The simulator's two pools under prompts that come as they please: what of an entry a prompt can use.

As in the simulator, an entry is one trajectory, and its KV is usable only up to a recurrent state that was
kept. Two are: where the last prompt ended and where the reply ended. So a prompt reuses the whole of the last
prompt and reply, or of the prompt alone, or nothing, whichever it really begins with.
"""

from dataclasses import dataclass

from coresched.lab.simulator.memory import Memory
from coresched.lab.simulator.twin.pools import CachePools
from coresched.lab.worker.requests import LiveColumns

Checkpoint = tuple[int, bytes]
"""Tokens up to a kept state, and their digest."""


@dataclass(frozen=True, slots=True)
class Entry:
    label: str | None
    checkpoints: tuple[Checkpoint, ...]
    """Longest first."""


class LivePools(CachePools):
    """`CachePools` in which a request continues the idle entry of its trajectory.

    A labelled request finds the entry of its label's last turn, one without a label the entry of a request
    without a label that shares the longest checkpoint. Each request is a sample of its own: when it starts,
    it takes over the tokens of that entry. Is that entry in use, it finds none and makes a second one, and
    the label's entry is then the one that was used last.
    """

    def __init__(self, columns: LiveColumns, memory: Memory) -> None:
        super().__init__(columns, memory)
        self.requests = columns
        self.entries: dict[int, Entry] = {}
        self.entry_of_label: dict[str, int] = {}
        self.unlabelled: dict[Checkpoint, int] = {}

    def hit(self, sample: int, prompt_tokens: int) -> int:
        _, reusable = self._match(sample)
        return min(reusable, prompt_tokens - 1)

    def touch(self, sample: int) -> None:
        entry, _ = self._match(sample)
        if entry is not None:
            super().touch(entry)

    def start(self, sample: int, final_tokens: int) -> None:
        request = self.requests[sample]
        entry, reusable = self._match(sample)
        request.cached_tokens = min(reusable, len(request.prompt) - 1)
        if entry is not None:
            del self.idle[entry]
            self._forget(entry)
            self.tokens[sample] = self.tokens.pop(entry)
            self.nodes[sample] = self.nodes.pop(entry)
            self.idle[sample] = None
        super().start(sample, final_tokens)

    def finish(self, sample: int, final_tokens: int, cached_tokens: int) -> None:
        super().finish(sample, final_tokens, cached_tokens)
        request = self.requests[sample]
        prompt = len(request.prompt)
        checkpoints = [(min(prompt, cached_tokens), request.digests.of(min(prompt, cached_tokens)))]
        if cached_tokens > prompt:
            checkpoints.insert(0, (cached_tokens, request.digests.continued(request.reply)))
        self._remember(sample, Entry(request.label, tuple(checkpoints)))

    def clear(self) -> None:
        """Drop all entries that no running request uses; they count as evictions."""
        while self.idle:
            sample, _ = self.idle.popitem(last=False)
            self._evict(sample)

    def _evict(self, sample: int) -> None:
        super()._evict(sample)
        self._forget(sample)

    def _match(self, sample: int) -> tuple[int | None, int]:
        """The idle entry that the request would continue, and how many of its tokens it can use."""
        request = self.requests[sample]
        if request.label is not None:
            entry = self.entry_of_label.get(request.label)
            if entry is None:
                return None, 0
            for checkpoint in self.entries[entry].checkpoints:
                if request.begins_with(checkpoint):
                    return entry, checkpoint[0]
            return entry, 0
        longest = max(filter(request.begins_with, sorted(self.unlabelled)), default=None)
        return (None, 0) if longest is None else (self.unlabelled[longest], longest[0])

    def _remember(self, sample: int, entry: Entry) -> None:
        self.entries[sample] = entry
        if entry.label is not None:
            self.entry_of_label[entry.label] = sample
        else:
            self.unlabelled.update(dict.fromkeys(entry.checkpoints, sample))

    def _forget(self, sample: int) -> None:
        entry = self.entries.pop(sample)
        if entry.label is not None:
            if self.entry_of_label.get(entry.label) == sample:
                del self.entry_of_label[entry.label]
            return
        for checkpoint in entry.checkpoints:
            if self.unlabelled.get(checkpoint) == sample:
                del self.unlabelled[checkpoint]
