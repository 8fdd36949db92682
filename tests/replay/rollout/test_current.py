"""Laws of the current state: it is the fold of all records, and each record is read once."""

from __future__ import annotations

from kappa.replay.rollout.current_state import current_state
from kappa.replay.rollout.fold import fold_records
from kappa.state.journal.events import Abandoned, Staged
from kappa.state.journal.journal import Journal
from kappa.state.store import Store


class CountingStore(Store):
    """A store that counts its reads."""

    reads = 0

    def get(self, name: str) -> bytes | None:
        self.reads += 1
        return super().get(name)


def stage_and_abandon(store: Store, first: int, count: int) -> None:
    journal = Journal(store)
    for number in range(first, first + 2 * count, 2):
        assert journal.append(number, Staged("p", f"b-{number}", f"v-{number}", ())) is not None
        assert journal.append(number + 1, Abandoned(number, "no longer wanted")) is not None


def test_a_second_state_reads_only_what_others_appended_since(tmp_path):
    store = CountingStore(tmp_path)
    stage_and_abandon(store, 1, 30)
    assert current_state(store).last == 60

    before = store.reads
    stage_and_abandon(Store(tmp_path), 61, 2)
    state = current_state(store)

    assert store.reads - before == 5
    assert state == fold_records(Journal(Store(tmp_path)).after(0))
