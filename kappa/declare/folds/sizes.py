"""The sizes of values in bytes, and the limit for the values that a fold keeps in one row. Pure.

A row with too many bytes cannot be written, and would stop the build. So a fold that keeps many
values orders them by a fixed rule, and keeps only the first values: up to a number of values and a
number of bytes. Whether a value is kept depends only on the values that precede it in that order.
Further values can only move a value back in the order. So a value that is dropped in one slice
would also be dropped among more values, and the result does not depend on how records are divided
into slices.
"""

from __future__ import annotations

from collections.abc import Callable

from kappa.declare.values.columns import Array, Decimal, Scalar, Struct, Type

# As many as the state of a step.
MOST_BYTES = 16 * 1024 * 1024
# Of each value, beside the bytes of a text.
_SCALAR_BYTES = 8
_DECIMAL_BYTES = 16

Size = Callable[[str], str]


def size_of(kind: Type) -> int | Size:
    """Returns the size of the values of a type in bytes.

    If the values have different sizes, returns a function. Called with the SQL of a value, the
    function returns Spark SQL for the size of that value.
    """
    return _size_of(kind, depth=0)


def _size_of(kind: Type, depth: int) -> int | Size:
    match kind:
        case Scalar("string" | "binary"):
            return lambda value: f"{_SCALAR_BYTES}L + coalesce(octet_length({value}), 0)"
        case Decimal():
            return _DECIMAL_BYTES
        case Struct(fields):
            return sum_of_sizes(
                {f".`{field.name}`": _size_of(field.type, depth) for field in fields}, _SCALAR_BYTES
            )
        case Array(element):
            # A lambda in a lambda has other names.
            total, each = f"total{depth}", f"each{depth}"
            size = size_sql(_size_of(element, depth + 1), each)
            return lambda value: (
                f"{_SCALAR_BYTES}L"
                f" + coalesce(aggregate({value}, 0L, ({total}, {each}) -> {total} + {size}), 0L)"
            )
        case _:
            return _SCALAR_BYTES


def sum_of_sizes(sizes: dict[str, int | Size], beside: int) -> int | Size:
    """Returns the total size of a struct in bytes: the sizes of its fields, plus `beside` bytes.

    `sizes` contains the size of each field, by the SQL suffix that selects the field. If a field
    has no fixed size, the result is a function. Called with the SQL of a struct, the function
    returns Spark SQL for the size of that struct.
    """
    fixed = beside + sum(size for size in sizes.values() if isinstance(size, int))
    texts = {suffix: size for suffix, size in sizes.items() if not isinstance(size, int)}
    if not texts:
        return fixed
    return lambda value: " + ".join(
        [f"{fixed}L", *(size(f"{value}{suffix}") for suffix, size in texts.items())]
    )


def size_sql(size: int | Size, value: str) -> str:
    """Returns Spark SQL for the size in bytes of the value whose SQL is `value`.

    `size` is the result of `size_of` for the value's type.
    """
    return f"{size}L" if isinstance(size, int) else size(value)


def always_fits(size: int | Size, limit: int) -> bool:
    """Returns True if `limit` values of a type can never exceed MOST_BYTES in total.

    `size` is the result of `size_of` for the type.
    """
    return isinstance(size, int) and size * limit <= MOST_BYTES


def is_large(values: str, size: int | Size) -> str:
    """Returns a Spark SQL condition that is true if an array's values exceed MOST_BYTES.

    `values` is the SQL of the array, and `size` is the size of one value. The condition is null if
    the array is null.
    """
    each = size_sql(size, "each")
    return f"aggregate({values}, 0L, (total, each) -> total + {each}) > {MOST_BYTES}L"


def first_values(values: str, limit: int, size: int | Size) -> str:
    """Returns Spark SQL that keeps the first values of an array and drops the other values.

    At most `limit` values are kept. As soon as the kept values exceed MOST_BYTES, no further value
    is kept. So the total size of all kept values except the last one is at most MOST_BYTES.
    """
    if always_fits(size, limit):
        return f"slice({values}, 1, {limit})"
    fits = f"case when state.bytes <= {MOST_BYTES}L then 1 else 0 end"
    counted = (
        "aggregate(every, named_struct('kept', 0, 'bytes', 0L), (state, each) -> "
        f"named_struct('kept', state.kept + {fits}, "
        f"'bytes', state.bytes + {size_sql(size, 'each')}), state -> state.kept)"
    )
    # The array is computed once, as the only element of another array.
    return f"transform(array({values}), every -> slice(every, 1, least({limit}, {counted})))[0]"
