"""Records of each kind with a value in each field, each with the form in which it is stored."""

from __future__ import annotations

from typing import Any

from kappa.declare.options import Thresholds
from kappa.declare.values.tally import Tally
from kappa.engine.job.legs import Aim, Leg, LegKind
from kappa.engine.job.splits import Begun
from kappa.serving.outlets.alerts.message import Message
from kappa.serving.outlets.alerts.outbox import DeadLetter, Missed, Outbox
from kappa.state.alignment import Alignment
from kappa.state.build import Base, Birth, TopicBirth
from kappa.state.build_status import Stopped
from kappa.state.file_sums import JoinedSums
from kappa.state.frontier import Frontier
from kappa.state.journal.events import (
    Abandoned,
    CaughtUp,
    Check,
    Difference,
    Event,
    Failed,
    Held,
    OutcomeCount,
    Paused,
    PipelineRetired,
    PromoteAsked,
    Proved,
    Receipt,
    RedriveAsked,
    Released,
    Resumed,
    Retired,
    Served,
    Staged,
    SwitchAsked,
    Switched,
    Verified,
    VerifyAsked,
)
from kappa.state.journal.journal import JournalRecord
from kappa.state.kept_frontiers import KeptFrontierRecord
from kappa.state.lease import Floor, Lease, Pin
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets
from kappa.state.slices import Cuts
from kappa.state.table import TableBirth
from kappa.state.witness import Witness
from kappa.tables.archive import ArchiveMark
from kappa.tables.stored_archive import LastingVersion

AT = Offsets({"vögel": {1: 7, 0: 5}, "a": {0: 1}})
BASE = Base("web-1", "v1", {"a": {"0": 1}}, 3, {"a": {"0": 0}})
CHECK = Check("hits", "hits > 0", 5, None, "why")
DIFFERENCE = Difference(
    "hits", 5, None, 1, 2, 3, {"n": 4}, {"n": 0.5}, 6, ("old",), ("new",), {"x": ("int", "bigint")}
)
MESSAGE = Message("msg_1", '{"alert": "é"}')
COUNT = OutcomeCount("a", "rejected", 1, 2)
RECEIPT = Receipt(
    "web",
    "web-2",
    "v2",
    AT,
    "web-1",
    AT,
    (CHECK,),
    ("why",),
    first=True,
    differences=(DIFFERENCE,),
    counts=(COUNT,),
    incomparable_topics=("b",),
    code="c",
    live_code="d",
    base=BASE,
    tables_of="web-0",
)
FRONTIER = Frontier(
    4,
    "web-1",
    2,
    AT,
    {"hits": 3},
    "2026-01-01T12:00:00.000+00:00",
    1,
    2,
    9,
    {"a": {0: 1_700_000_000_000}},
    {"a": {0: Tally(1, 2, 3, 4, 5, 6)}},
    "2026-01-01T11:00:00.000+00:00",
    {"hits/x.parquet": (10, 20)},
    {"a": {0: Witness(0, -1, "00ff")}},
)
EVENTS: tuple[Event, ...] = (
    Staged(
        "web",
        "web-2",
        "v2",
        ("why",),
        ("gap: it is old",),
        auto_promote=False,
        base=BASE,
        tables_of="web-0",
    ),
    SwitchAsked("web", "web-1", "undo", ("x",)),
    CaughtUp(1, AT, 2),
    Verified(1, "passed", AT, (CHECK,), "r", "web-1", (DIFFERENCE,), (COUNT,), ("b",), 1, 2),
    VerifyAsked(1, 2),
    PromoteAsked(1, (2,)),
    Held(1, "web-1", 2, (3,)),
    Released(1, "web-1", 2, "late"),
    Served(1, 2, {"web": "web-2"}, RECEIPT, (Switched(3, RECEIPT),), 1),
    Abandoned(1, "why"),
    Failed(1, "why", "hint", (2,)),
    Retired("web-1"),
    Proved(
        "web",
        "web-1",
        AT,
        "random",
        3,
        None,
        equal=True,
        rows=5,
        hash="00ff",
        differences=(DIFFERENCE,),
        counts=(COUNT,),
        left_out={"hits.x": "it varies"},
        causes=("clock",),
        base=BASE,
    ),
    PipelineRetired("web", "web-1", 3, {}, ("hits",), AT, 3600.0, 2),
    Paused("web"),
    Resumed("web"),
    RedriveAsked("web", {"visits": 2}),
)
RECORDS: tuple[Any, ...] = (
    Birth(
        "web-2",
        "web",
        "v2",
        {"function x.py:f": "00"},
        3,
        {"x.py": "ff"},
        "x",
        (TopicBirth("a", "id", "compacted", 2),),
        (
            TableBirth(
                "hits",
                (("page", "string"), ("hits", "bigint")),
                ("page",),
                {"hits": ("sum", "n"), "all": ("count", None)},
                "a",
                ("hits > 0",),
                Thresholds(0.5, None, 1.0),
                (("n", "bigint"),),
                {"hits": {"k": 3, "by": "n", "share": 0.5}},
                {"hits": "bigint"},
            ),
        ),
        {"top": "select 1"},
        {"a": {"0": 1}},
        {"duckdb": "1"},
        "2026-01-01T12:00:00.000+00:00",
        "me@here",
        accepted=("x",),
        declarations={"table hits": "lines\n"},
        max_rejects=0.01,
        base=BASE,
        tables_of="web-0",
    ),
    FRONTIER,
    KeptFrontierRecord(FRONTIER, (1, 2), stays=True, until="2026-01-01T12:00:00.000+00:00"),
    Lease(12, "me@here", 1_700_000_000.5, {"web-1": Pin(4, {"hits": 3})}, "00ff"),
    Floor(3),
    Leg(1, LegKind.ALIGNMENT, AT, (AT,), Aim(FRONTIER, ("a",), "lease")),
    Begun(AT, AT, 2),
    Alignment(1, FRONTIER, FRONTIER, ("a",), "lease"),
    Cuts((AT,), 50_000),
    Stopped("message", "hint", "2026-01-01T12:00:00.000+00:00", ("a",)),
    JoinedSums({"hits/x.parquet": (10, 20)}),
    LastingVersion(3, {"x.parquet": (10, 20)}),
    Outbox(3, "1.web-2.4", 1_700_000_000.5, (MESSAGE,), Missed(1.5, 2.5)),
    DeadLetter(MESSAGE, "why", 2, "2026-01-01T12:00:00.000+00:00"),
    *(JournalRecord(number, event, "at", "me", "id") for number, event in enumerate(EVENTS, 1)),
)
MARK = Mark(
    "web-1",
    "hits",
    1,
    2,
    AT,
    AT,
    {"a": {0: 1_700_000_000_000}},
    {"a": {0: Tally(1, 2, 3, 4, 5, 6)}},
    {"a": {0: Witness(0, -1, "00ff")}},
)
ARCHIVE_MARK = ArchiveMark(
    "vögel",
    "id",
    "00ff",
    {1: 0, 0: 1},
    {1: 7, 0: 5},
    {0: 1_700_000_000_000},
    {0: Tally(1, 2, 3, 4, 5, 6)},
    {0: ((1, 3), (4, 5))},
    {0: Witness(4, 2, "00ff")},
)
