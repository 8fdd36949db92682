"""The storage of a root that is in a bucket: where its server is. Values.

No credentials are among them: they are in the environment (`AWS_ACCESS_KEY_ID`, ...), or found by
the usual chain.
"""

from __future__ import annotations

from typing import Annotated

from kappa.base.section.section import Section, Size


class StorageSettings(Section, frozen=True):
    """The server of a bucket, by the S3 protocol."""

    endpoint: Annotated[str | None, "URL of the S3 server; none: Amazon's"] = None
    region: Annotated[str | None, "region of the bucket; none: AWS_REGION, or us-east-1"] = None
    path_style: Annotated[
        bool, "the bucket is in the path of a request, and not in the host's name"
    ] = True
    cache: Annotated[
        Size,
        "most that is kept on this host's disk of files that queries over HTTP have read",
    ] = "2g"
