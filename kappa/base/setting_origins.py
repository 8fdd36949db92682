"""The origin of each setting: a line of kappa.toml, a variable, a flag, or the default.

Values of secrets are never shown. Options of Kafka may have passwords, so their values are hidden,
too; of Spark's settings only those that are secrets are hidden.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kappa.base.section.cluster import is_secret_of_spark
from kappa.base.section.section import Section, is_secret
from kappa.base.settings import FILE, Settings, given_by_environment, has_parts, kind_at

HIDDEN = "(hidden)"
DEFAULT = "default"
# The setting whose parts are Spark's own settings.
_SPARK = ("engine", "conf")
SettingPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SettingOrigin:
    """A setting with the value in force, and the origin of the value.

    The value of a secret is HIDDEN. `origin` is `FILE:LINE`, a variable, a flag, or DEFAULT.
    """

    name: str
    value: Any
    origin: str


def setting_origins(settings: Settings, **flags: Any) -> tuple[SettingOrigin, ...]:
    """Lists all settings of a project. `flags` are the flags with which `settings` were loaded."""
    origins: dict[SettingPath, str] = {}
    for path, line in _lines_of(_file_text(settings.project)).items():
        origins[path] = f"{FILE}:{line}"
    for name, given in given_by_environment():
        origins.update((path, name) for path, _ in _leaves(given))
    origins.update(((flag,), f"--{flag}") for flag, given in flags.items() if given is not None)
    return tuple(
        SettingOrigin(".".join(path), _shown(path, value), origins.get(path, DEFAULT))
        for path, value in _leaves(_plain(settings))
    )


def file_settings(project: Path) -> dict[str, str]:
    """Returns the settings that kappa.toml has now, as JSON by name; secrets are HIDDEN.

    A file that cannot be read has none: the loader of the settings says why.
    """
    try:
        given = tomllib.loads(_file_text(project))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError):
        return {}
    return {
        ".".join(path): json.dumps(_shown(path, value), default=str, sort_keys=True)
        for path, value in _leaves(given)
    }


def changed_settings(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Lists the settings in which two results of `file_settings` differ. Pure."""
    return tuple(sorted(name for name in {*before, *now} if before.get(name) != now.get(name)))


def _file_text(project: Path) -> str:
    return (project / FILE).read_text(encoding="utf-8")


def _plain(settings: Settings) -> dict[str, Any]:
    """Returns the settings in the form of the file."""
    plain = msgspec.to_builtins(settings, enc_hook=str)
    del plain["project"]
    return dict(plain)


def _leaves(given: Any, path: SettingPath = ()) -> Iterator[tuple[SettingPath, Any]]:
    """Yields each setting with its value, including those in sections and named parts."""
    if isinstance(given, Mapping) and given and (not path or has_parts(kind_at(path))):
        for name, each in given.items():
            yield from _leaves(each, (*path, name))
    elif not (isinstance(given, Mapping) and not given and _is_section_at(path)):
        yield path, given


def _is_section_at(path: SettingPath) -> bool:
    kind = kind_at(path)
    return isinstance(kind, type) and issubclass(kind, Section)


def _shown(path: SettingPath, value: Any) -> Any:
    """Returns the value of a setting, or HIDDEN in place of a secret.

    An empty secret is not hidden.
    """
    if path[:-1] == _SPARK:
        hidden = is_secret_of_spark(path[-1])
    else:
        above = kind_at(path[:-1])
        is_part = has_parts(above) and not _is_section_at(path[:-1])
        hidden = is_part or is_secret(kind_at(path))
    return HIDDEN if hidden and value not in ("", None, {}, []) else value


def _lines_of(text: str) -> dict[SettingPath, int]:
    """Returns the line at which each setting of a TOML text begins.

    A text up to the end of a line is TOML if no value continues in the next line. So the settings
    that such a text adds to the last one begin in the line after the last one.
    """
    lines, found, begin = text.splitlines(), dict[SettingPath, int](), 1
    for end in range(1, len(lines) + 1):
        try:
            given = tomllib.loads("\n".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue
        for path, _ in _leaves(given):
            found.setdefault(path, begin)
        begin = end + 1
    return found
