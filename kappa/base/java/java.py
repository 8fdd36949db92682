"""The Java runtime of this machine: its folder and its version.

Both come from the output of `java -XshowSettings:properties -version`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kappa.base.errors import KappaError

# Kafka 4 and Spark 4 are compiled for Java 17.
OLDEST = 17
# Commands that install Java, and the systems on which they do.
_WAYS = {
    f"apt-get install openjdk-{OLDEST}-jre-headless": "Debian, Ubuntu",
    f"dnf install java-{OLDEST}-openjdk-headless": "Fedora",
    f"brew install openjdk@{OLDEST}": "macOS",
}


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime.

    `home` is its folder, `version` the major version, and `build` the vendor and the full version.
    """

    home: Path
    version: int
    build: str

    @property
    def command(self) -> str:
        """Returns the path of the `java` program."""
        return str(self.home / "bin" / "java")


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Finds the Java runtime in JAVA_HOME, or in PATH if JAVA_HOME is not set, as Spark does.

    Raises KappaError, with the package to install, if Java is missing or older than 17. Also raises
    KappaError if JAVA_HOME is wrong. In this case, PATH is not searched, since Spark would not
    search PATH either.
    """
    program = locate_java(environment)
    java = parse_properties(_printed(program, environment), program)
    if java.version < OLDEST:
        raise KappaError(
            f"{program} is Java {java.version}, and Kafka and Spark need Java {OLDEST} or newer",
            hint=f"{_how_to_install()}, and set JAVA_HOME to it if both stay",
        )
    return java


def locate_java(environment: Mapping[str, str] = os.environ) -> str:
    """Returns the path of the `java` program to use, without checking its version.

    Raises KappaError if Java is missing, or if JAVA_HOME is wrong.
    """
    home = environment.get("JAVA_HOME")
    if home:
        program = str(Path(home) / "bin" / "java")
        if not os.access(program, os.X_OK):
            raise KappaError(
                f"JAVA_HOME is {home}, and there is no bin/java in it",
                hint=f"unset JAVA_HOME, or {_how_to_install()}",
            )
        return program
    found = shutil.which("java", path=environment.get("PATH"))
    if found is None:
        raise KappaError(
            f"there is no Java on this machine, and Kafka and Spark need Java {OLDEST} or newer",
            hint=_how_to_install(),
        )
    return found


def parse_properties(printed: str, program: str) -> Java:
    """Parses the output of `java -XshowSettings:properties -version`.

    Only the lines of properties are parsed: every vendor's Java prints them in the same form,
    unlike the lines of `-version`. Raises KappaError if the output does not contain a version.
    """
    properties = dict(re.findall(r"^\s+(java\.[a-z.]+) = (.*?)\s*$", printed, re.MULTILINE))
    # Java 8 and older versions are numbered as 1.8.
    version = re.fullmatch(r"(?:1\.)?(\d+)", properties.get("java.specification.version", ""))
    if version is None or "java.home" not in properties:
        last = (printed.strip().splitlines() or ["it printed nothing"])[-1]
        raise KappaError(
            f"{program} does not say which Java it is: {last.strip()}", hint=_how_to_install()
        )
    vendor, build = properties.get("java.vendor", ""), properties.get("java.vm.version", version[0])
    return Java(
        home=Path(properties["java.home"]),
        version=int(version[1]),
        build=f"{vendor} {build}".strip(),
    )


def _printed(program: str, environment: Mapping[str, str]) -> str:
    try:
        # The output is in English, since errors quote lines of it; the property lines are the
        # same in all languages.
        asked = subprocess.run(
            [program, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
            env={**environment, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KappaError(f"{program} cannot be run: {error}", hint=_how_to_install()) from error
    return asked.stderr + asked.stdout


def _how_to_install() -> str:
    """Returns the command that installs Java on this machine, for hints.

    If no known installer is found, returns the commands of all known installers.
    """
    here = [way for way in _WAYS if shutil.which(way.partition(" ")[0])]
    if here:
        return f"install it: {here[0]}"
    named = ", ".join(f"{way} ({system})" for way, system in _WAYS.items())
    return f"install it: {named}"
