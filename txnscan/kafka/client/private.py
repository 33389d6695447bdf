"""The private attributes and the inner parts of kafka-python on which txnscan rests, and why.

They may change in any release with another minor version, which `pyproject.toml` therefore excludes;
`tests/unit/test_private.py` holds both against the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# By the class that has them.
PRIVATE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        # Reads through `receiving.py`; a pause before a new connection is told from a lost one.
        "kafka.net.manager.KafkaConnectionManager": ("_build_transport", "_conns"),
        # Bytes go from the socket into the buffer of an answer, within a common limit.
        "kafka.net.transport.KafkaTCPTransport": ("_sock", "_sock_recv"),
        "kafka.protocol.parser.KafkaProtocol": (
            "_header",
            "_process_response",
            "_rbuffer",
            "_receiving",
            "_reset_buffer",
        ),
        # A message of SCRAM is parsed strictly before kafka-python gets it.
        "kafka.net.sasl.scram.SaslMechanismScram": ("_state",),
        # The generated decoders of answers: their lists and tagged fields have limits.
        "kafka.protocol.schemas.fields.codegen.CodegenContext": ("globs",),
        "kafka.protocol.schemas.fields.codecs.tagged_fields.TaggedFields": ("decode",),
        # The bytes of a batch, which are expanded within a limit, and its records, whose headers have one.
        "kafka.record.default_records.DefaultRecordBatch": ("_buffer", "_read_msg"),
    }
)
