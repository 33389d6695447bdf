"""A local server of Spark Connect in this process. Scripts in processes of their own import it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def local_server(port: int) -> SparkSession:
    """Starts a server at this port of the loopback address, and returns a session of it."""
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client import DefaultChannelBuilder

    from txnscan.engine.spark.session import local_settings

    # PySpark assumes port 15002 for a local server, which may be taken.
    DefaultChannelBuilder.default_port = staticmethod(lambda: port)  # type: ignore[method-assign]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        **local_settings("elsewhere"),
    }
    builder = SparkSession.builder.remote("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
