"""The secrets in a kappa.toml, where secrets must not be. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kappa.base.section.cluster import is_secret_of_spark
from kappa.base.section.section import Section, is_secret


def secrets_in(
    file: Mapping[str, Any], sections: Mapping[tuple[str, ...], type[Section]], prefix: str
) -> Iterator[tuple[str, str]]:
    """Yields each secret in a file, by the name of its setting, with where to give it.

    `sections` are by their paths, in which `*` is any name. Variables begin with the `prefix`.
    """
    for path, section in sections.items():
        kinds = section.kinds()
        secrets = [name for name, kind in kinds.items() if is_secret(kind)]
        for named, given in _sections_at(file, path):
            for name in (each for each in secrets if each in given):
                own = f"{name}_file"
                mend = f"give it in the variable {_variable(prefix, (*named, name))}"
                file_mend = f", or name a file that only you may read: {own}"
                yield ".".join((*named, name)), f"{mend}{file_mend if own in kinds else ''}"
    for named, given in _sections_at(file, ("engine", "conf")):
        for name in filter(is_secret_of_spark, given):
            # Names of variables have no dots, and Kappa reads all of them as lower case.
            variable = _variable(prefix, named)
            mend = f"""give it in the variable {variable}, as JSON: {{"{name}": "..."}}"""
            yield ".".join((*named, name)), mend


def _variable(prefix: str, path: tuple[str, ...]) -> str:
    return f"{prefix}{'__'.join(path).upper()}"


def _sections_at(
    given: Any, path: tuple[str, ...], named: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yields what is given at a path, with its name; `*` is a part of any name."""
    if not isinstance(given, dict):
        return
    if not path:
        yield named, given
        return
    for part in given if path[0] == "*" else [path[0]]:
        yield from _sections_at(given.get(part), path[1:], (*named, part))
