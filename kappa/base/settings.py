"""Settings: kappa.toml, beaten by the environment (`KAPPA__KAFKA__BOOTSTRAP_SERVERS`), beaten by flags.

A project is the nearest parent folder that holds kappa.toml. Unknown keys are errors with a suggestion.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as Unparsed

from kappa.base.errors import SettingsError
from kappa.base.units import parse_duration

FILE = "kappa.toml"
_PREFIX = "KAPPA__"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KafkaSettings(_Section):
    """`[kafka]`: which broker, and how clients talk to it."""

    bootstrap_servers: str | None = Field(
        default=None, description="an existing cluster; none: Kappa runs its own broker"
    )
    options: dict[str, str] = Field(
        default_factory=dict, description="any client setting, passed through to every client"
    )
    heap: str = Field(
        default="512m", description="heap of the embedded broker", pattern=r"^\d+[mg]$"
    )


class JarsSettings(_Section):
    """`[jars]`: where jars come from."""

    repository: str | None = Field(
        default=None, description="another Maven repository than the default one"
    )
    cache: Path | None = Field(default=None, description="another folder than the user's cache")


class EngineSettings(_Section):
    """`[engine]`: how a job folds."""

    memory: str = Field(default="2g", description="heap of a job's JVM", pattern=r"^\d+[mg]$")
    cores: int = Field(default=0, ge=0, description="cores a job may use; 0: all")
    slice_records: int = Field(
        default=2_000_000, ge=1, description="most offsets in one slice of a catch-up"
    )
    tail_records: int = Field(
        default=100_000, ge=1, description="most offsets in one micro-batch of the tail"
    )
    driver_rows: int = Field(
        default=50_000,
        ge=0,
        description="slices of at most so many offsets are decoded, and contributions of so many rows committed, in the job's own process; larger ones by Spark",
    )
    merge_bytes: int = Field(
        default=32 * 2**20,
        ge=0,
        description="contributions by key are merged in the job's own process, however many, while they have at most so many bytes; more by Spark. A merge takes ten to forty times as much memory",
    )
    large_rows: int = Field(
        default=500_000,
        ge=0,
        description="beside a table of so many rows what slices contribute by key waits until there is some part of that, so that no slice costs what the table weighs; readers fold it in",
    )
    maintenance_seconds: float = Field(
        default=30.0,
        gt=0,
        description="how often a job compacts its tables and drops what nobody needs",
    )


class RolloutSettings(_Section):
    """`[rollout]`: how a switch is made."""

    hold_seconds: float = Field(
        default=10.0,
        gt=0,
        description="how long the live job keeps its frontier still for a promote",
    )
    hold_attempts: int = Field(
        default=3, ge=1, description="how often a promote tries to get there"
    )
    lease_seconds: float = Field(
        default=60.0,
        gt=0,
        description="how long a reader's pinned versions are kept if it does not renew",
    )
    soak: str = Field(
        default="1h",
        description="how long the build that served before is kept consuming after a promote, so that it can be undone: 90s, 30m, 1h, 2d",
        pattern=r"^\d{1,12}[smhd]$",
    )

    @property
    def soak_seconds(self) -> float:
        """The soak, in seconds."""
        milliseconds = parse_duration(self.soak)
        assert milliseconds is not None, "its pattern allows nothing else"
        return milliseconds / 1000


class HistorySettings(_Section):
    """`[history]`: how far back a query can look."""

    every_seconds: float = Field(
        default=60.0,
        gt=0,
        description="how often the live job keeps what readers see, for kappa query --at",
    )
    keep_seconds: float = Field(
        default=3600.0,
        ge=0,
        description="how long that is kept; what was seen at a switch stays as long as its build",
    )


class ArchiveSettings(_Section):
    """`[archive]`: how topics that declare an archive are copied."""

    every_seconds: float = Field(
        default=60.0,
        gt=0,
        description="how long at most records wait to be archived; many do not wait",
    )


class PlanSettings(_Section):
    """`[plan]`: what a plan tries before it promises a replay."""

    sample_records: int = Field(
        default=20,
        ge=0,
        description="so many records at the beginning, in the middle and at the end of each partition are read to see whether a replay could; 0: none",
    )
    max_unreadable: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="a plan refuses where more than this share of them, in all or at one place, would be rejected",
    )


class VerifySettings(_Section):
    """`[verify]`: what a verification and a diff may take."""

    memory: str = Field(
        default="1g",
        description="memory for checks and for the diff of two builds; what does not fit is spilled",
        pattern=r"^\d+[mg]$",
    )
    threads: int = Field(default=0, ge=0, description="threads for them; 0: one a core")
    temp: str = Field(default="tmp", description="folder for what is spilled; relative to the root")
    temp_size: str = Field(
        default="20g", description="most that may be spilled", pattern=r"^\d+[mg]$"
    )
    law_records: int = Field(
        default=200,
        ge=0,
        description="on so many records of each topic a new version is held to the law of slices before it is replayed; 0: on none",
    )
    timeout_seconds: float = Field(
        default=3600.0,
        gt=0,
        description="how long a verification may take; then nothing is concluded, and nothing swapped",
    )


class ServeSettings(_Section):
    """`[serve]`: where HTTP is served, and what one query of a stranger may take."""

    listen: str = Field(
        default="127.0.0.1:8717",
        description='where kappa up serves HTTP, as HOST:PORT; nothing (`""`): nowhere; where the port is taken, at another one',
    )
    token: str = Field(
        default="",
        description="who asks has to bring it; needed where other machines can ask",
        repr=False,
    )
    query_memory: str = Field(
        default="512m",
        description="memory of one query over HTTP; one that needs more is ended",
        pattern=r"^\d+[mg]$",
    )
    query_seconds: float = Field(
        default=30.0, gt=0, description="how long one may take; then it is ended"
    )
    query_rows: int = Field(
        default=100_000, ge=1, description="most rows of its answer; one that is cut says so"
    )
    query_bytes: str = Field(
        default="32m", description="most bytes of its answer, likewise", pattern=r"^\d+[mg]$"
    )
    queries: int = Field(default=4, ge=1, description="how many are answered at once; others wait")
    compare_seconds: float = Field(
        default=120.0,
        gt=0,
        description="how long the page may compare two builds to show the rows that differ; then that is ended; kappa diff takes as long as it takes",
    )


class Settings(BaseSettings):
    """All settings of one project; `project` is the folder that holds kappa.toml."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix=_PREFIX, env_nested_delimiter="__"
    )

    project: Path = Path()
    root: str = Field(
        default=".kappa", description="where everything lies; relative to the project"
    )
    kafka: KafkaSettings = KafkaSettings()
    jars: JarsSettings = JarsSettings()
    engine: EngineSettings = EngineSettings()
    rollout: RolloutSettings = RolloutSettings()
    history: HistorySettings = HistorySettings()
    archive: ArchiveSettings = ArchiveSettings()
    plan: PlanSettings = PlanSettings()
    verify: VerifySettings = VerifySettings()
    serve: ServeSettings = ServeSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  # pydantic's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # pydantic's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # pydantic's signature
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment before what `load_settings` read from the file; flags are merged in after both."""
        return env_settings, init_settings

    @property
    def root_url(self) -> str:
        """The root, made absolute from the project's folder; URLs stay as they are."""
        return self.root if "://" in self.root else str((self.project / self.root).absolute())

    @property
    def runs_broker(self) -> bool:
        """True where Kappa starts its own broker."""
        return self.kafka.bootstrap_servers is None


def find_project(start: Path) -> Path:
    """The nearest folder from `start` upwards that holds kappa.toml. Raises SettingsError where there is none."""
    here = start.absolute()
    for folder in (here, *here.parents):
        if (folder / FILE).is_file():
            return folder
    raise SettingsError(
        f"there is no {FILE} in {here} or above",
        hint=f"make one where your pipelines/ folder is: touch {FILE}",
    )


def load_settings(start: Path, **flags: Any) -> Settings:
    """The settings of the project around `start`. `flags` (`root=...`) beat file and environment; None means not given.

    Raises SettingsError that names the key, where it stands, and the nearest known one.
    """
    project = find_project(start)
    try:
        in_file = tomllib.loads((project / FILE).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SettingsError(
            f"{project / FILE} cannot be read: {error}", hint="mend the file; it is TOML"
        ) from error
    if "project" in in_file:
        raise SettingsError(
            f"{project / FILE}: project is no setting: it is the folder that holds the file"
        )
    # Pydantic looks in the environment for what it knows, and passes over all else.
    for first in sorted(
        name.upper().removeprefix(_PREFIX).split("__")[0].lower()
        for name in os.environ
        if name.upper().startswith(_PREFIX)
    ):
        if first not in _known(Settings):
            raise _unknown([first], project)
    given = {flag: value for flag, value in flags.items() if value is not None}
    try:
        # Not by the constructor, where the environment beats what it is given. The command line has typed its flags.
        return Settings(**in_file, project=project).model_copy(update=given)
    except ValidationError as error:
        raise _explained(error, project) from None
    except Unparsed as error:
        raise SettingsError(
            f"the environment cannot be read: {error}",
            hint=f"what has parts is given as JSON, or part by part: {_PREFIX}KAFKA__HEAP=1g, {_PREFIX}KAFKA__OPTIONS='{{...}}'",
        ) from error


def _explained(error: ValidationError, project: Path) -> SettingsError:
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        return _unknown(path, project)
    hint = f"mend it in {project / FILE} or in {_PREFIX}{'__'.join(path).upper()}"
    return SettingsError(
        f"setting {'.'.join(path)} is {first.get('input')!r}: {first['msg']}",
        hint="; ".join(filter(None, (hint, _description(path)))),
    )


def _description(path: list[str]) -> str:
    section: Any = Settings
    said = ""
    for part in path:
        field = getattr(section, "model_fields", {}).get(part)
        said, section = ("", None) if field is None else (field.description or "", field.annotation)
    return said


def _unknown(path: list[str], project: Path) -> SettingsError:
    section: Any = Settings
    for part in path[:-1]:
        section = section.model_fields[part].annotation
    near = difflib.get_close_matches(path[-1], _known(section), n=1)
    return SettingsError(
        f"{'.'.join(path)} is no setting ({project / FILE} or {_PREFIX}{'__'.join(path).upper()})",
        hint=f"did you mean {'.'.join([*path[:-1], *near])}?"
        if near
        else f"there are {', '.join(_known(section))}",
    )


def _known(section: type[BaseModel]) -> list[str]:
    return [field for field in section.model_fields if field != "project"]
