"""The storage of a root that is in a bucket: where its server is. Values.

No credentials are among them: they are in the environment (`AWS_ACCESS_KEY_ID`, ...), or found by
the usual chain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from kappa.base.section.section import Section, Size

_ENDPOINT = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?")


class StorageSettings(Section, frozen=True):
    """The server of a bucket, by the S3 protocol."""

    endpoint: Annotated[str | None, "URL of the S3 server, without a bucket; none: Amazon's"] = None
    region: Annotated[str | None, "region of the bucket; none: AWS_REGION, or us-east-1"] = None
    path_style: Annotated[
        bool, "the bucket is in the path of a request, and not in the host's name"
    ] = True
    cache: Annotated[
        Size,
        "most that is kept on this host's disk of files that queries over HTTP have read",
    ] = "2g"


def without_secrets(url: str) -> str:
    """Returns a URL as it may be printed, without a login and what follows a question mark.

    A secret may have slashes in it, so the last `@` counts.
    """
    without_login = re.sub(r"(?<=://).*@", "...@", url, flags=re.DOTALL)
    return re.sub(r"[?#].*", "?...", without_login, flags=re.DOTALL)


def problems(storage: StorageSettings) -> Iterator[tuple[str, str, str]]:
    """Yields what is wrong with a bucket's server: a setting's name, why, and what to do. Pure."""
    if storage.endpoint is None:
        return
    url = _ENDPOINT.fullmatch(storage.endpoint)
    if url is None or int(url["port"] or 443) not in range(1, 1 << 16):
        # Its value is not told: a password may be in it.
        yield (
            "storage.endpoint",
            "is not the URL of a server",
            "give http://HOST:PORT or https://HOST without a path; credentials are not part of it",
        )
