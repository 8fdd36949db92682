"""The settings of a project, from flags, the environment and kappa.toml.

A flag overrides the environment, and the environment overrides kappa.toml. An environment variable
has a name such as `KAPPA__KAFKA__BOOTSTRAP_SERVERS`. The project is the nearest folder that
contains a kappa.toml: the current folder, or a folder above it. An unknown key is an error; the
error's hint contains the most similar known key.

A list of settings never shows the values of secrets. It hides the values of all Kafka options,
since these may contain passwords. Of the settings of Spark, it hides only secrets.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from kappa.base.cluster_rules import is_secret_of_spark, problems_of_cluster
from kappa.base.errors import SettingsError, did_you_mean, joined_error
from kappa.base.sections import (
    SECRET,
    AccessSettings,
    AgentSettings,
    AlertSettings,
    ArchiveSettings,
    ChangesSettings,
    CollectSettings,
    Durability,
    EngineSettings,
    HistorySettings,
    JarsSettings,
    KafkaAuth,
    KafkaSettings,
    NotifySettings,
    OidcSettings,
    PlanSettings,
    PullSettings,
    RegistrySettings,
    RolloutSettings,
    Section,
    ServeSettings,
    Size,
    StorageSettings,
    TokenSettings,
    VerifySettings,
    ViewsSettings,
    description,
    is_secret,
    problems_of_storage,
    without_secrets,
)
from kappa.base.units import parse_memory

FILE = "kappa.toml"
# The names of a setting, from its outermost section.
SettingPath = tuple[str, ...]
_PREFIX = "KAPPA__"
_Given = TypeVar("_Given")

# The sections whose secrets may not be in kappa.toml, since the file is copied with the project,
# into images and histories.
_WITHOUT_SECRETS: Mapping[tuple[str, ...], type[Section]] = {
    ("kafka", "auth"): KafkaAuth,
    ("registry",): RegistrySettings,
    # `*` stands for any name.
    ("collect", "pull", "*"): PullSettings,
    ("access", "tokens", "*"): TokenSettings,
    ("access", "oidc"): OidcSettings,
}


class Settings(Section, frozen=True):
    """All settings of one project. `project` is the folder of kappa.toml."""

    project: Path = Path()
    root: Annotated[
        str,
        Meta(min_length=1),
        "folder of all data of Kappa, relative to the project; or s3://BUCKET/PREFIX",
    ] = ".kappa"
    local: Annotated[
        str,
        Meta(min_length=1),
        "if the root is in a bucket: folder for this host's own locks, logs and scratch files, "
        "which may be lost",
    ] = ".kappa"
    storage: StorageSettings = StorageSettings()
    durability: Annotated[
        Durability,
        "disk: acknowledged data are on the disk, and survive a power loss; process: "
        "acknowledged data survive only the death of processes, which costs less",
    ] = Durability.DISK
    reserve: Annotated[
        Size,
        "free space that is kept on the root's disk: when less is free, jobs stop folding until "
        "twice as much is free, and queries are still answered; 0m: none",
    ] = "32m"
    kafka: KafkaSettings = KafkaSettings()
    registry: RegistrySettings = RegistrySettings()
    jars: JarsSettings = JarsSettings()
    engine: EngineSettings = EngineSettings()
    rollout: RolloutSettings = RolloutSettings()
    history: HistorySettings = HistorySettings()
    archive: ArchiveSettings = ArchiveSettings()
    changes: ChangesSettings = ChangesSettings()
    plan: PlanSettings = PlanSettings()
    verify: VerifySettings = VerifySettings()
    views: ViewsSettings = ViewsSettings()
    serve: ServeSettings = ServeSettings()
    agents: AgentSettings = AgentSettings()
    alerts: AlertSettings = AlertSettings()
    notify: NotifySettings = NotifySettings()
    collect: CollectSettings = CollectSettings()
    access: AccessSettings = AccessSettings()

    @property
    def root_url(self) -> str:
        """Returns the root as a URL or an absolute path.

        If the setting `root` is a relative path, it is relative to the project's folder.
        """
        return self.root if "://" in self.root else str((self.project / self.root).absolute())

    @property
    def reserve_bytes(self) -> int:
        """Returns the number of bytes that Kappa keeps free on the root's disk (`reserve`)."""
        return parse_memory(self.reserve)

    @property
    def syncs(self) -> bool:
        """Returns True if acknowledged records must survive a power loss."""
        return self.durability is Durability.DISK

    @property
    def runs_broker(self) -> bool:
        """Returns True if Kappa runs its own Kafka broker."""
        return self.kafka.bootstrap_servers is None


def find_project(start: Path) -> Path:
    """Returns the nearest folder with a kappa.toml: `start` or a folder above it.

    Raises SettingsError if neither `start` nor a folder above it contains a kappa.toml.
    """
    here = start.absolute()
    for folder in (here, *here.parents):
        if (folder / FILE).is_file():
            return folder
    raise SettingsError(
        f"there is no {FILE} in {here} or above",
        hint=f"make a project: kappa init NAME; or, beside your pipelines/ folder: touch {FILE}",
    )


def load_settings(start: Path, **flags: Any) -> Settings:
    """Loads the settings of the project that contains the folder `start`.

    `flags`, such as `root="..."`, override kappa.toml and the environment; a flag that is None is
    ignored. Raises SettingsError if there is no project, or if a setting is wrong. The error names
    the key, the file or variable, and the most similar known key.
    """
    return _settings_of(find_project(start), flags)


def load_settings_anywhere(start: Path) -> Settings:
    """Loads the settings of the project that contains `start`, if there is such a project.

    If there is none, the settings come from the environment and the defaults. Raises SettingsError
    if a setting is wrong.
    """
    try:
        project = find_project(start)
    except SettingsError:
        project = start.absolute()
    return _settings_of(project, {})


def _settings_of(project: Path, flags: Mapping[str, Any]) -> Settings:
    """Loads the settings of the project in the folder `project`, with `flags`.

    A missing kappa.toml counts as empty. Raises SettingsError, which contains all mistakes that
    were found.
    """
    file = project / FILE
    try:
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        in_file = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SettingsError(
            f"{file} cannot be read: {error}", hint="correct the syntax: the file is TOML"
        ) from error
    mistakes = list(_mistakes_of_file(in_file))
    settings: Settings = _read(Settings, _beaten(in_file, _in_environment()), (), mistakes)
    if not mistakes:
        mistakes.extend(_mistakes_together(settings))
    refused = joined_error(_errors_of(mistakes, text)) if mistakes else None
    if refused is not None:
        raise refused
    if settings.jars.cache is not None:
        # Commands are typed in any folder of the project.
        cache = project / settings.jars.cache
        settings = replace(settings, jars=replace(settings.jars, cache=cache))
    given = {flag: value for flag, value in flags.items() if value is not None}
    return replace(settings, project=project, **given)


def _in_environment() -> dict[str, Any]:
    """Returns the settings from the environment, in the structure of kappa.toml."""
    found: dict[str, Any] = {}
    for _, given in given_by_environment():
        found = _beaten(found, given)
    return found


def given_by_environment() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields each environment variable that contains settings, together with these settings.

    The settings have the structure of kappa.toml. A later variable overrides an earlier one. Raises
    SettingsError if the value of a variable for a whole section is not JSON.
    """
    for name in sorted(os.environ, key=str.upper):
        if not name.upper().startswith(_PREFIX):
            continue
        path = name.upper().removeprefix(_PREFIX).lower().split("__")
        given: Any = os.environ[name]
        if has_parts(kind_at(path)):
            try:
                given = msgspec.json.decode(given)
            except ValueError:
                # The reason of the error may show a secret.
                raise SettingsError(
                    f"the environment cannot be read: {name} is not JSON",
                    hint=(
                        "a section is given as JSON, or part by part: "
                        f"{_PREFIX}KAFKA__HEAP=1g, {_PREFIX}KAFKA__OPTIONS='{{...}}'"
                    ),
                ) from None
        for part in reversed(path):
            given = {part: given}
        yield name, given


def _beaten(given: Any, other: Any) -> Any:
    """Merges two sections setting by setting, and returns the merged section.

    If both sections contain a setting, the value in `other` is used.
    """
    if not (isinstance(given, dict) and isinstance(other, dict)):
        return other
    beaten = {name: _beaten(given[name], other[name]) for name in given.keys() & other.keys()}
    return {**given, **other, **beaten}


@dataclass(frozen=True, slots=True)
class _Mistake:
    """A mistake in the setting at `path`.

    `says` is the part of the error's message after the name of the setting. If `in_file` is True,
    the mistake is in kappa.toml, even if the environment overrides the setting.
    """

    path: SettingPath
    says: str
    hint: str
    in_file: bool = False


def _mistakes_of_file(in_file: Mapping[str, Any]) -> Iterator[_Mistake]:
    for path, mend in secrets_in(in_file, _WITHOUT_SECRETS, _PREFIX):
        yield _Mistake(
            path,
            f"is a secret, and {FILE} may have none: the file is copied with the project",
            f"{mend}; and change the secret, if others had the file",
            in_file=True,
        )


def _mistakes_together(settings: Settings) -> Iterator[_Mistake]:
    """Yields the mistakes that are checked only when all values have the right types.

    These are wrong settings of the cluster or the bucket, and a URL as the value of `local`.
    """
    for name, problem, mend in (
        *problems_of_cluster(settings.engine),
        *problems_of_storage(settings.storage),
    ):
        # Names of Spark's own settings have dots.
        yield _Mistake(tuple(name.split(".", 2)), problem, mend)
    if "://" in settings.local:
        yield _Mistake(
            ("local",),
            f"is {without_secrets(settings.local)}, and locks are on a disk of this host",
            "give a folder, such as .kappa",
        )


def _errors_of(mistakes: Iterable[_Mistake], text: str) -> list[SettingsError]:
    """Returns an error for each mistake.

    The message of an error begins with the variable, or with `kappa.toml:LINE`. `text` is the text
    of kappa.toml. Mistakes in the file come first, in the order of their lines.
    """
    lines = _lines_of(text)
    variables = {path: name for name, given in given_by_environment() for path, _ in _leaves(given)}
    found = []
    for each in mistakes:
        variable = None if each.in_file else _nearest(variables, each.path)
        line = None if variable else _nearest(lines, each.path)
        origin = variable or (FILE if line is None else f"{FILE}:{line}")
        error = SettingsError(f"{origin}: {'.'.join(each.path)} {each.says}", hint=each.hint)
        found.append((variable or "", line is None, line or 0, error))
    return [error for *_, error in sorted(found, key=lambda each: each[:3])]


def _nearest(given: Mapping[SettingPath, _Given], path: SettingPath) -> _Given | None:
    """Returns the value for `path` in `given`, or else the first value for a path below `path`.

    Returns None if `given` contains neither.
    """
    inside = (given[each] for each in given if each[: len(path)] == path)
    return given.get(path, next(inside, None))


def _read(kind: Any, given: Any, path: SettingPath, mistakes: list[_Mistake]) -> Any:
    """Converts the given value of a setting or a section to the type `kind`.

    Adds each mistake in the value to `mistakes`. If a part of the value is wrong, the result does
    not contain this part.
    """
    if isinstance(given, dict) and has_parts(kind):
        if _is_section(kind):
            kinds = {name: kind.kinds()[name] for name in _setting_names(kind)}
            mistakes += [_unknown((*path, name), kind) for name in given if name not in kinds]
        else:
            part = _kind_of_parts(kind)
            # Options may have passwords.
            kinds = dict.fromkeys(given, part if _is_section(part) else Annotated[part, SECRET])
        read = {
            name: _read(kinds[name], each, (*path, name), mistakes)
            for name, each in given.items()
            if name in kinds
        }
        if not _is_section(kind):
            return read
        if any(each.path[: len(path)] == path for each in mistakes):
            return msgspec.UNSET
        try:
            return kind(**read)
        except SettingsError as error:
            # Settings that contradict each other: the message begins with the section's name.
            name, _, says = error.message.partition(" ")
            mistakes.append(_Mistake(tuple(name.split(".")), says, error.hint))
            return msgspec.UNSET
    try:
        return msgspec.convert(given, kind, strict=False, dec_hook=_path_of)
    except msgspec.ValidationError as error:
        mistakes.append(_wrong(kind, given, path, str(error)))
        return msgspec.UNSET


def _wrong(kind: Any, given: Any, path: SettingPath, why: str) -> _Mistake:
    if has_parts(kind):
        name = ".".join(path)
        return _Mistake(path, "is a section, and no single value", f"begin it with [{name}]")
    hidden = is_secret(kind)
    value = f"of the type {type(given).__name__}" if hidden else repr(given)
    hint, words = description(kind), () if hidden else _words_of(kind)
    unknown = [each for each in _listed(given) if each not in words]
    if words and unknown:
        near = did_you_mean(str(unknown[0]), words)
        says = f"is {value}, which is not one of {', '.join(words)}"
        return _Mistake(path, says, f"{near} {hint}".lstrip())
    form = next((each.description for each in get_args(kind) if isinstance(each, Meta)), None)
    return _Mistake(
        path, f"is {value}{f': {why}' if form is None else f', which is not {form}'}", hint
    )


def _words_of(kind: Any) -> tuple[str, ...]:
    """Returns the words that a setting may have as its value, or as elements of its list.

    Returns an empty tuple if the values of the setting are not limited to certain words.
    """
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return tuple(kind)
    return next(filter(None, map(_words_of, get_args(kind))), ())


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _path_of(kind: type, given: Any) -> Path:
    if kind is not Path:
        raise NotImplementedError
    return Path(given)


def _unknown(path: SettingPath, section: type[Section]) -> _Mistake:
    names = [".".join((*path[:-1], name)) for name in _setting_names(section)]
    elsewhere = [".".join(each) for each in _setting_paths(Settings) if each[-1] == path[-1]]
    hint = did_you_mean(".".join(path), names)
    if not hint and elsewhere:
        hint = f"did you mean {' or '.join(elsewhere)}?"
    return _Mistake(path, "is not a setting", hint or f"there are {', '.join(names)}")


def _setting_paths(section: type[Section]) -> Iterator[SettingPath]:
    """Yields the paths of all settings in a section.

    Settings below names that users choose, such as `collect.pull.NAME`, are left out.
    """
    for name in _setting_names(section):
        kind = section.kinds()[name]
        below = _setting_paths(kind) if _is_section(kind) else ((),)
        yield from ((name, *path) for path in below)


def kind_at(path: Sequence[str]) -> Any:
    """Returns the type of the setting or section at a path, or None if the path is unknown."""
    kind: Any = Settings
    for part in path:
        if _is_section(kind):
            kind = kind.kinds().get(part)
        else:
            kind = _kind_of_parts(kind) if has_parts(kind) else None
    return kind


def _kind_of_parts(kind: Any) -> Any:
    """Returns the type of the values in a mapping whose keys users choose.

    `kind` is the type of the mapping.
    """
    return get_args(get_args(kind)[0])[1]


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)


def has_parts(kind: Any) -> bool:
    """Returns True if a type is a section, or a mapping whose keys users choose."""
    return _is_section(kind) or any(get_origin(each) is dict for each in get_args(kind))


def _setting_names(section: type[Section]) -> list[str]:
    return [name for name in section.kinds() if name != "project"]


def secrets_in(
    file: Mapping[str, Any], sections: Mapping[tuple[str, ...], type[Section]], prefix: str
) -> Iterator[tuple[SettingPath, str]]:
    """Yields the path of each secret in a file, and a hint that says where to put the secret.

    `sections` contains the sections with secrets, by path; `*` in a path stands for any name.
    `prefix` is the beginning of the names of environment variables.
    """
    for path, section in sections.items():
        kinds = section.kinds()
        secrets = [name for name, kind in kinds.items() if is_secret(kind)]
        for named, given in _sections_at(file, path):
            for name in (each for each in secrets if each in given):
                own = f"{name}_file"
                mend = f"give it in the variable {_variable(prefix, (*named, name))}"
                file_mend = f", or name a file that only you may read: {own}"
                yield (*named, name), f"{mend}{file_mend if own in kinds else ''}"
    for named, given in _sections_at(file, ("engine", "conf")):
        for name in filter(is_secret_of_spark, given):
            # Names of variables have no dots, and Kappa reads all of them as lower case.
            variable = _variable(prefix, named)
            mend = f"""give it in the variable {variable}, as JSON: {{"{name}": "..."}}"""
            yield (*named, name), mend


def _variable(prefix: str, path: tuple[str, ...]) -> str:
    return f"{prefix}{'__'.join(path).upper()}"


def _sections_at(
    given: Any, path: tuple[str, ...], named: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yields a pair (path, values) for each section in `given` that `path` matches.

    A `*` in `path` matches any name.
    """
    if not isinstance(given, dict):
        return
    if not path:
        yield named, given
        return
    for part in given if path[0] == "*" else [path[0]]:
        yield from _sections_at(given.get(part), path[1:], (*named, part))


HIDDEN = "(hidden)"
DEFAULT = "default"
# The setting whose parts are Spark's own settings.
_SPARK = ("engine", "conf")


@dataclass(frozen=True, slots=True)
class SettingOrigin:
    """A setting with the value that Kappa uses, and the place where the value is set.

    The value of a secret is HIDDEN. `origin` is the place: `FILE:LINE`, an environment variable, a
    flag, or DEFAULT.
    """

    name: str
    value: Any
    origin: str


def setting_origins(settings: Settings, **flags: Any) -> tuple[SettingOrigin, ...]:
    """Returns all settings of a project with their values and the places where they are set.

    `flags` must be the flags with which `settings` were loaded.
    """
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
    """Returns the settings that are now in kappa.toml: the value as JSON, by the setting's name.

    The value of a secret is HIDDEN. Returns {} if the file cannot be read; the function that loads
    the settings reports the reason.
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
    """Lists the names of the settings that differ between two results of `file_settings`. Pure."""
    return tuple(sorted(name for name in {*before, *now} if before.get(name) != now.get(name)))


def _file_text(project: Path) -> str:
    return (project / FILE).read_text(encoding="utf-8")


def _plain(settings: Settings) -> dict[str, Any]:
    """Returns the settings as plain values, in the structure of kappa.toml."""
    plain = msgspec.to_builtins(settings, enc_hook=str)
    del plain["project"]
    return dict(plain)


def _leaves(given: Any, path: SettingPath = ()) -> Iterator[tuple[SettingPath, Any]]:
    """Yields a pair (path, value) for each single setting in `given`.

    `path` is the path of `given` itself.
    """
    if isinstance(given, Mapping) and given and (not path or has_parts(kind_at(path))):
        for name, each in given.items():
            yield from _leaves(each, (*path, name))
    elif not (isinstance(given, Mapping) and not given and _is_section_at(path)):
        yield path, given


def _is_section_at(path: SettingPath) -> bool:
    kind = kind_at(path)
    return isinstance(kind, type) and issubclass(kind, Section)


def _shown(path: SettingPath, value: Any) -> Any:
    """Returns the value of a setting for display.

    Returns HIDDEN for a secret that is not empty, and a URL without its user name and password.
    """
    if path[:-1] == _SPARK:
        hidden = is_secret_of_spark(path[-1])
    else:
        above = kind_at(path[:-1])
        is_part = has_parts(above) and not _is_section_at(path[:-1])
        hidden = is_part or is_secret(kind_at(path))
    if hidden and value not in ("", None, {}, []):
        return HIDDEN
    return without_secrets(value) if isinstance(value, str) and "://" in value else value


def _lines_of(text: str) -> dict[SettingPath, int]:
    """Returns the number of the line at which each setting of a TOML text begins.

    The function parses the first line of the text, the first two lines, the first three lines, and
    so on. Such a part is valid TOML unless a value continues in the next line. A setting begins in
    the line after the previous valid part if the next valid part is the first that contains the
    setting.
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
