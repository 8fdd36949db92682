"""Arrow's arrays of texts and bytes, made from their lengths.

Compiled code (kappa/base/loops.py) has copied the texts one behind the other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Ends = npt.NDArray[np.int32]
# Where records are in their batch.
Places = npt.NDArray[np.int64]


def ends_of(lengths: Numbers) -> Ends:
    """Returns the begin of the first and the end of each, in bytes, together less than 2 GiB.

    A length of -1 is null, and takes no bytes.
    """
    ends = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=ends[1:])
    return ends


def array_of(kind: pa.DataType, lengths: Numbers, ends: Ends, data: Bytes) -> pa.Array:
    """Makes the array, with a null for each length of -1."""
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
