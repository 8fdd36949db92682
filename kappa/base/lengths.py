"""Arrow's arrays of texts and bytes, made of how long each of them is: compiled code (kappa/base/compiled.py) has copied them one behind the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Ends = npt.NDArray[np.int32]


def ends_of(lengths: Numbers) -> Ends:
    """Where the first begins, and where each ends, in bytes; a length of -1 is null, and takes none. Together they are less than 2 GiB."""
    ends = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=ends[1:])
    return ends


def array_of(kind: pa.DataType, lengths: Numbers, ends: Ends, data: Bytes) -> pa.Array:
    """The array, null where a length is -1."""
    null = lengths < 0
    return pa.Array.from_buffers(
        kind,
        len(lengths),
        [
            pa.array(~null).buffers()[1] if null.any() else None,
            pa.py_buffer(ends),
            pa.py_buffer(data),
        ],
    )
