"""CRC-32C, the checksum of record batches: by the library `crc32c`, which is compiled, or where it is not installed, as
on an executor that has nothing but Spark's Python, by kafka-python's own code.
"""

from __future__ import annotations

try:
    from crc32c import crc32c
except ImportError:
    from kafka.record.util import calc_crc32c as crc32c  # type: ignore[no-redef]

__all__ = ["crc32c"]
