"""CRC-32C, the checksum of record batches. The compiled library `crc32c` computes it. If that is not installed, for
example on an executor with only Spark's Python, kafka-python's own code does.
"""

from __future__ import annotations

try:
    from crc32c import crc32c
except ImportError:
    from kafka.record.util import calc_crc32c as crc32c  # type: ignore[no-redef]

__all__ = ["crc32c"]
