"""The settings of a project: kappa.toml, beaten by the environment, beaten by flags.

A variable of the environment is named as in `KAPPA__KAFKA__BOOTSTRAP_SERVERS`. A project is the
nearest parent folder with a kappa.toml. Unknown keys are errors with a suggestion.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from kappa.base.errors import SettingsError
from kappa.base.sections import (
    ArchiveSettings,
    Durability,
    EngineSettings,
    HistorySettings,
    JarsSettings,
    KafkaSettings,
    PlanSettings,
    RolloutSettings,
    ServeSettings,
    VerifySettings,
)
from kappa.base.units import parse_memory

FILE = "kappa.toml"
_PREFIX = "KAPPA__"


class Settings(BaseModel):
    """All settings of one project; `project` is the folder of kappa.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    project: Path = Path()
    root: str = Field(default=".kappa", description="folder of everything; relative to the project")
    durability: Durability = Field(
        default=Durability.DISK,
        description=(
            "disk: what is acknowledged is on the disk, and survives a power loss; "
            "process: it survives the death of processes alone, and costs less"
        ),
    )
    reserve: str = Field(
        default="32m",
        description=(
            "space of the root's disk that is kept for when it is full: then jobs rest until twice "
            "as much is free, and queries are answered; 0m: none"
        ),
        pattern=r"^\d+[mg]$",
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

    @property
    def root_url(self) -> str:
        """Returns the root, made absolute from the project's folder; URLs stay as they are."""
        return self.root if "://" in self.root else str((self.project / self.root).absolute())

    @property
    def reserve_bytes(self) -> int:
        """Returns the reserve in bytes."""
        return parse_memory(self.reserve)

    @property
    def syncs(self) -> bool:
        """Returns True if what is acknowledged is to survive a power loss."""
        return self.durability is Durability.DISK

    @property
    def runs_broker(self) -> bool:
        """Returns True if Kappa starts its own broker."""
        return self.kafka.bootstrap_servers is None


def find_project(start: Path) -> Path:
    """Finds the nearest folder from `start` upwards with a kappa.toml, or raises SettingsError."""
    here = start.absolute()
    for folder in (here, *here.parents):
        if (folder / FILE).is_file():
            return folder
    raise SettingsError(
        f"there is no {FILE} in {here} or above",
        hint=f"make one where your pipelines/ folder is: touch {FILE}",
    )


def load_settings(start: Path, **flags: Any) -> Settings:
    """Loads the settings of the project around `start`.

    `flags` (`root=...`) beat file and environment; None means not given. Raises SettingsError that
    names the key, its file or variable, and the nearest known one.
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
            f"{project / FILE}: project is no setting: it is the folder of the file"
        )
    variables = sorted(name.upper() for name in os.environ if name.upper().startswith(_PREFIX))
    # Pydantic passes over variables of the environment that it does not know.
    for name in variables:
        first = name.removeprefix(_PREFIX).split("__")[0].lower()
        if first not in _setting_names(Settings):
            raise _unknown([first], project)
    given = {flag: value for flag, value in flags.items() if value is not None}
    read = _beaten_by_environment if variables else Settings
    try:
        # Not by the constructor, in which the environment beats arguments. Flags have their types.
        return read(**in_file, project=project).model_copy(update=given)
    except ValidationError as error:
        raise _explained(error, project) from None


def _beaten_by_environment(**in_file: Any) -> Settings:
    # It takes longer to load than a small query takes.
    from pydantic_settings import (  # noqa: PLC0415
        BaseSettings,
        PydanticBaseSettingsSource,
        SettingsConfigDict,
    )
    from pydantic_settings import SettingsError as Unparsed  # noqa: PLC0415

    class Beaten(Settings, BaseSettings):
        model_config = SettingsConfigDict(env_prefix=_PREFIX, env_nested_delimiter="__")

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],  # noqa: ARG003  # pydantic's signature
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # pydantic's signature
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # pydantic's signature
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return env_settings, init_settings

    try:
        found = Beaten(**in_file)
    except Unparsed as error:
        raise SettingsError(
            f"the environment cannot be read: {error}",
            hint=(
                "a section is given as JSON, or part by part: "
                f"{_PREFIX}KAFKA__HEAP=1g, {_PREFIX}KAFKA__OPTIONS='{{...}}'"
            ),
        ) from error
    return Settings(**{name: getattr(found, name) for name in Settings.model_fields})


def _explained(error: ValidationError, project: Path) -> SettingsError:
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        return _unknown(path, project)
    hint = f"mend it in {project / FILE} or in {_PREFIX}{'__'.join(path).upper()}"
    field, given = _field(path), first.get("input")
    # A whole section, in whatever form it was given, has its secrets in it.
    is_shown = field is not None and field.repr and not hasattr(field.annotation, "model_fields")
    value = repr(given) if is_shown else f"of the type {type(given).__name__}"
    return SettingsError(
        f"setting {'.'.join(path)} is {value}: {first['msg']}",
        hint="; ".join(filter(None, (hint, field and field.description))),
    )


def _field(path: list[str]) -> FieldInfo | None:
    """Returns the field of a setting; that of an option of Kafka's is None."""
    section: Any = Settings
    field = None
    for part in path:
        field = getattr(section, "model_fields", {}).get(part)
        section = None if field is None else field.annotation
    return field


def _unknown(path: list[str], project: Path) -> SettingsError:
    section: Any = Settings
    for part in path[:-1]:
        section = section.model_fields[part].annotation
    near = difflib.get_close_matches(path[-1], _setting_names(section), n=1)
    return SettingsError(
        f"{'.'.join(path)} is no setting ({project / FILE} or {_PREFIX}{'__'.join(path).upper()})",
        hint=f"did you mean {'.'.join([*path[:-1], *near])}?"
        if near
        else f"there are {', '.join(_setting_names(section))}",
    )


def _setting_names(section: type[BaseModel]) -> list[str]:
    return [field for field in section.model_fields if field != "project"]
