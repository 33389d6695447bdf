"""A server that speaks S3, in a process of its own on loopback. It keeps objects in memory.

    python -m tests.s3 [--takes-no-notice]

It takes one request at a time, so that a conditional put is one step, as in S3. moto's own server checks first and puts
later. --takes-no-notice: ignore If-None-Match, as a server without conditional puts does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.process import ROOT

BUCKET = "tables"


@contextmanager
def s3_server(*options: str) -> Iterator[dict[str, str]]:
    """The environment in which delta-rs finds the server, with its bucket."""
    command = [sys.executable, "-m", "tests.s3", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            yield {
                "AWS_ENDPOINT_URL": address,
                "AWS_ALLOW_HTTP": "true",
                "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
            }
        finally:
            server.kill()


def main(options: list[str]) -> None:
    """Serves until it is ended."""
    import logging

    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from moto.s3.models import s3_backends
    from werkzeug.serving import make_server

    logging.disable(logging.CRITICAL)
    app = DomainDispatcherApplication(create_backend_app)
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(BUCKET, "us-east-1")

    def careless(environment: dict[str, Any], start: Any) -> Any:
        environment.pop("HTTP_IF_NONE_MATCH", None)
        return app(environment, start)

    server = make_server("127.0.0.1", 0, careless if options else app)
    print(f"http://127.0.0.1:{server.port}", flush=True)  # noqa: T201
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
