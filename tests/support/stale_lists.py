"""Lists of a bucket that lag behind its objects, as if a cache in front of the server answered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import unescape

from between import Answer, Between

_ENTRY = re.compile(rb"<Contents>.*?<Key>(.*?)</Key>.*?</Contents>", re.DOTALL)


class StaleLists:
    """Answers lists as they were at the last look at the whole bucket; objects are current."""

    def __init__(self, between: Between) -> None:
        """Takes the proxy. Lists are current until `behind` begins."""
        self._between = between
        # By the name of an object, its entry as the server has listed it.
        self._entries: dict[str, bytes] = {}
        self.count = 0

    @contextmanager
    def behind(self, root: str) -> Iterator[None]:
        """Makes all lists within the block show the state at the begin of the block."""
        self._entries = {}
        self._between.changing = self._remember
        self._list_all(root)
        self._between.changing = self._answer_as_then
        try:
            yield
        finally:
            self._between.changing = lambda _request, answer: answer

    def _list_all(self, root: str) -> None:
        from kappa.state.files.bucket import Bucket  # as a client of its own

        Bucket(root, self._between.storage).list_metas("")

    def _remember(self, _request: str, answer: Answer) -> Answer:
        self._entries |= {
            unescape(found[1].decode()): found[0] for found in _ENTRY.finditer(answer.content)
        }
        return answer

    def _answer_as_then(self, request: str, answer: Answer) -> Answer:
        asked = parse_qs(urlsplit(request.split()[1]).query)
        if not request.startswith("GET ") or "list-type" not in asked:
            return answer
        prefix, after = (asked.get(name, [""])[0] for name in ("prefix", "start-after"))
        ends_at = asked.get("delimiter", [""])[0]
        entries, folders = list[bytes](), set[str]()
        for name, entry in sorted(self._entries.items()):
            if not name.startswith(prefix) or name <= after:
                continue
            below, cut, _ = name.removeprefix(prefix).partition(ends_at) if ends_at else ("",) * 3
            if cut:
                folders.add(f"{prefix}{below}{cut}")
            else:
                entries.append(entry)
        self.count += 1
        named = "".join(
            f"<CommonPrefixes><Prefix>{each}</Prefix></CommonPrefixes>" for each in sorted(folders)
        )
        told = b"".join(entries) + named.encode()
        content = b"<ListBucketResult><IsTruncated>false</IsTruncated>%s</ListBucketResult>" % told
        return Answer(answer.status, answer.headers, content)
