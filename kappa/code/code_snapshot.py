"""A build's code snapshot: the project's files at the time when the build was born.

The files are stored under `builds/<build>/code/`. A build always runs from its own code snapshot.
So after a restart, a build still runs the code of its version, even if the working tree has
changed. The birth certificate contains the SHA-256 of every file. A changed file is an error
(Broken), since other code has folded the build's tables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from kappa.base.errors import Broken, DeclarationError
from kappa.base.failpoint import failpoint
from kappa.code.fingerprint import as_of_birth
from kappa.code.importer import open_sources
from kappa.code.project import PipelinePlace, load_module, pipelines_in
from kappa.code.reach import imported_files
from kappa.code.sources import Find, Sources
from kappa.declare.pipeline import Pipeline
from kappa.declare.project_files import named_files
from kappa.state.build import Birth, folder_of_build
from kappa.state.store import Store


def snapshot_files(module: str, find: Find) -> Mapping[str, bytes]:
    """Returns the content of each file that an import of `module` reads, by path.

    The result includes data files that the declarations name. The project must be loaded first,
    because Kappa learns the names of the data files only when it loads the project.
    """
    code = {path: source.content for path, source in imported_files(module, find).items()}
    return {**code, **named_files(code)}


def hash_files(contents: Mapping[str, bytes]) -> dict[str, str]:
    """Returns the SHA-256 of each file, by path, in the form of a birth certificate's `sources`."""
    return {path: hashlib.sha256(content).hexdigest() for path, content in sorted(contents.items())}


def ensure_snapshot(store: Store, build: str, contents: Mapping[str, bytes]) -> None:
    """Writes the files of a build into its code folder.

    After the build's birth, the folder must not change.
    """
    for path, content in contents.items():
        failpoint("snapshot.before_file")
        store.put(f"{_code_folder(build)}/{path}", content)
        failpoint("snapshot.after_file")


def read_snapshot(store: Store, birth: Birth) -> Mapping[str, bytes]:
    """Returns the content of each file in a build's code snapshot, by path.

    The hashes of the files are not checked. The result does not contain files that are missing.
    """
    found = ((path, store.get(f"{_code_folder(birth.build)}/{path}")) for path in birth.sources)
    return {path: content for path, content in found if content is not None}


def load_snapshot(store: Store, birth: Birth) -> Pipeline:
    """Loads the pipeline of a build from the build's code snapshot.

    From then on, this process imports project modules only from this code snapshot. Spark's Python
    workers do so too if engine/spark/workers.py has prepared them. Raises Broken if a file of the
    code snapshot is missing, was changed or was added, or if the code no longer runs (for example,
    because a library has changed).
    """
    return load_with_place(store, birth)[1]


def snapshot_sources(store: Store, birth: Birth) -> Sources:
    """Returns the modules of a build's code snapshot, as files on this host.

    If the root is in a bucket, first copies the files to this host. Raises Broken if the copy
    differs from the files at the build's birth.
    """
    if not store.is_on_disk:
        for path, content in read_snapshot(store, birth).items():
            name = f"{_code_folder(birth.build)}/{path}"
            if store.local.get(name) != content:
                store.local.put(name, content)
        # A file that was added here would be imported, too.
        ensure_unchanged(store.local, birth)
    return Sources(store.local.path(_code_folder(birth.build)))


def load_with_place(store: Store, birth: Birth) -> tuple[PipelinePlace, Pipeline]:
    """Loads a build's pipeline as `load_snapshot` does, and returns (place, pipeline).

    The place is the module and the attribute in the build's code that contain the pipeline.
    """
    ensure_unchanged(store, birth)
    sources = snapshot_sources(store, birth)
    open_sources(sources)
    try:
        found = [
            (place, as_of_birth(pipeline, birth.parts, birth.semantics))
            for place, pipeline in pipelines_in(load_module(birth.module, sources))
            if pipeline.name == birth.pipeline
        ]
    except DeclarationError as error:
        hint = (
            f"its libraries may have changed since {birth.born_at}; install those of its birth, "
            f"or rebuild: kappa replay {birth.pipeline}"
        )
        raise Broken(
            f"the code of build {birth.build} does not run any more: {error.message}", hint=hint
        ) from error
    if not found:
        raise Broken(
            f"the code of build {birth.build} declares no pipeline {birth.pipeline}",
            hint=f"rebuild: kappa replay {birth.pipeline}",
        )
    return found[0]


def ensure_unchanged(store: Store, birth: Birth) -> None:
    """Raises Broken if a file of a build's code snapshot is missing, was changed or was added."""
    prefix = f"{_code_folder(birth.build)}/"
    there = {
        name.removeprefix(prefix): hashlib.sha256(store.get(name) or b"").hexdigest()
        for name in store.names(_code_folder(birth.build))
        if "__pycache__" not in name
    }
    for path, digest in birth.sources.items():
        if there.get(path) != digest:
            what = "is missing from" if path not in there else "was changed in"
            raise Broken(
                f"{path} {what} the code snapshot of build {birth.build}",
                hint=f"put it back as it was, or rebuild: kappa replay {birth.pipeline}",
            )
    added = sorted(there.keys() - birth.sources.keys())
    if added:
        raise Broken(
            f"{added[0]} was added to the code snapshot of build {birth.build}",
            hint=f"take {store.address(prefix + added[0])} away",
        )


def _code_folder(build: str) -> str:
    return f"{folder_of_build(build)}/code"
