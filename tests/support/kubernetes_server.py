"""A stand-in for the API server of Kubernetes, which runs the pods of executors as processes here.

It answers only the requests of Spark's scheduler. Instead of a watch, Spark polls every two
seconds. A process has the environment that a pod would have, runs what the image's entry point
runs, and listens at its own address.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from http_server import QuietHandler
from manifests import FIELDS, TREE, environment

_NAMESPACE = FIELDS["metadata.namespace"]
_PATH = re.compile(rf"/api/v1/namespaces/{_NAMESPACE}/(\w+)(?:/([^/]+))?")
_VERBS = {"POST": ("create", "create"), "PATCH": ("patch", "patch"), "PUT": ("update", "update")}
_VERBS |= {"GET": ("list", "get"), "DELETE": ("deletecollection", "delete")}


class Kubernetes:
    """The pods by name, the requests that came, and the processes of the created pods."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._addresses = (f"127.0.0.{number}" for number in itertools.count(2))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self.closed = threading.Event()
        # As the rules of a Role have them: a resource and a verb.
        self.asked: set[tuple[str, str]] = set()
        self.created: list[dict[str, Any]] = []
        name = FIELDS["metadata.name"]
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self._pods = {name: {**_identified({"metadata": {"name": name}}), "status": ready}}

    def answer(self, method: str, url: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Answers a request with a status and a document."""
        parts = urlsplit(url)
        found = _PATH.fullmatch(parts.path)
        query = parse_qs(parts.query)
        if found is None:
            return _failure(404)
        resource, name = found[1], found[2]
        verb = "watch" if "watch" in query else _VERBS[method][name is not None]
        with self._lock:
            self.asked.add((resource, verb))
            if verb == "watch":
                # By a websocket: Spark asks again without one.
                return _failure(503)
            given = json.loads(body) if verb in {"create", "patch"} else {}
            if resource != "pods":
                return (201, given) if verb == "create" else (200, {"kind": "Status"})
            return self._of_pods(verb, name, query, given)

    def close(self) -> None:
        """Ends all pods and all watches."""
        self.closed.set()
        for name in tuple(self._processes):
            self._end(name)

    def _of_pods(
        self, verb: str, name: str, query: Mapping[str, list[str]], given: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        if verb == "create":
            pod = _identified(given)
            self.created.append(pod)
            self._start(pod)
            return 201, pod
        labels = dict(re.findall(r"([^,=!]+)=([^,]+)", query.get("labelSelector", [""])[0]))
        labels.pop("spark-exec-inactive", None)
        chosen = [
            each
            for each in ([name] if name else self._pods)
            if each in self._pods
            and labels.items() <= self._pods[each]["metadata"].get("labels", {}).items()
        ]
        if name and not chosen:
            return _failure(404)
        if verb == "list":
            items = [self._looked_at(each) for each in chosen]
            return 200, {"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": items}
        if verb in {"delete", "deletecollection"}:
            for each in chosen:
                self._end(each)
            return 200, {"kind": "Status", "status": "Success"}
        return 200, self._looked_at(name)

    def _start(self, pod: dict[str, Any]) -> None:
        name, address = pod["metadata"]["name"], next(self._addresses)
        (container,) = pod["spec"]["containers"]
        mine = {**FIELDS, "metadata.name": name, "status.podIP": address}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        variables = {
            **{each: os.environ[each] for each in ("HOME", "JAVA_HOME") if each in os.environ},
            **dict(environment(container["env"], mine)),
            "PATH": path,
        }
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [TREE / "deploy" / "entrypoint.sh", *container["args"]],
                env=variables,
                cwd=self._folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._pods[name] = pod
        pod["status"] = {"phase": "Running", "podIP": address}

    def _looked_at(self, name: str) -> dict[str, Any]:
        process = self._processes.get(name)
        if process is not None and process.poll() is not None:
            self._pods[name]["status"]["phase"] = "Failed" if process.returncode else "Succeeded"
        return self._pods[name]

    def _end(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            del self._pods[name]


@contextmanager
def running_kubernetes(folder: Path) -> Iterator[tuple[Kubernetes, str]]:
    """Yields the server and its URL. The pods end with the server."""
    kubernetes = Kubernetes(folder)

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            if "watch=true" in self.path and not self.headers.get("Upgrade"):
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                # Nothing is ever reported by it: Spark looks besides.
                kubernetes.closed.wait()
                return
            status, document = kubernetes.answer(self.command, self.path, self.rfile.read(size))
            self.send_json(status, {"apiVersion": "v1", **document})

        do_POST = do_PATCH = do_PUT = do_DELETE = do_GET  # noqa: N815  # http.server's names

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield kubernetes, f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            kubernetes.close()
            server.shutdown()
            serving.join()


def _identified(manifest: dict[str, Any]) -> dict[str, Any]:
    born = {"resourceVersion": "1", "creationTimestamp": "2026-11-28T00:00:00Z"}
    metadata = {**manifest["metadata"], **born, "uid": str(uuid.uuid4())}
    return {"apiVersion": "v1", "kind": "Pod", **manifest, "metadata": metadata}


def _failure(status: int) -> tuple[int, dict[str, Any]]:
    return status, {"kind": "Status", "status": "Failure", "code": status}
