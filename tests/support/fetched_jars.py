"""Jars of other servers for tests, which Ivy fetches once per user.

The jars are compared with a lock file. A line of that file is `USE SHA-256 GROUP:ARTIFACT:VERSION`.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from kappa.base.java.jars import spark_home
from kappa.base.java.java import find_java
from kappa.base.temporary_folders import user_cache


def fetched_jars(name: str, lock: Path, folders: Mapping[str, str]) -> Path | None:
    """Returns the folder of all jars of a lock file, or None if they cannot be fetched here.

    `folders` gives the subfolder of the jars of each use. `name` is the folder in the user's cache.
    """
    text = lock.read_text(encoding="utf-8")
    jars = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    cache = user_cache(name)
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / hashlib.sha256(text.encode()).hexdigest()[:12]
    with (cache / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if place.is_dir():
            return place
        _fetch((module for _, _, module in jars), cache / "ivy")
        new = cache / "new"
        shutil.rmtree(new, ignore_errors=True)
        for use, digest, module in jars:
            group, artifact, version = module.split(":")
            jar = f"{artifact}-{version}.jar"
            found = next((cache / "ivy/cache").glob(f"{group}/{artifact}/*/{jar}"), None)
            if found is None or hashlib.sha256(found.read_bytes()).hexdigest() != digest:
                return None
            into = new / folders[use] / jar
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(found, into)
        new.rename(place)
        shutil.rmtree(cache / "ivy")
    return place


def _fetch(modules: Iterable[str], ivy: Path) -> None:
    ivy.mkdir(exist_ok=True)
    named = (module.split(":") for module in modules)
    dependencies = "\n".join(
        f'<dependency org="{group}" name="{artifact}" rev="{version}" transitive="false"'
        ' conf="default->master"/>'
        for group, artifact, version in named
    )
    (ivy / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="kappa" module="tests"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>",
        encoding="utf-8",
    )
    program = next(spark_home().glob("jars/ivy-*.jar"))
    command = [find_java().command, f"-Divy.default.ivy.user.dir={ivy / 'user'}", "-jar", program]
    command += ["-ivy", ivy / "ivy.xml", "-cache", ivy / "cache"]
    subprocess.run(command, check=False, capture_output=True, timeout=900)
