"""The names of all settings of Kafka's clients, to distinguish a mistyped setting from one that has no meaning here.

They come from `AdminClientConfig`, `ProducerConfig` and `ConsumerConfig` of Kafka 4.3.1, which include those of
`CommonClientConfigs`, `SslConfigs` and `SaslConfigs`. A test compares them with Kafka's own.
"""

from __future__ import annotations

import difflib

# A single text that is split, because the list is long.
ADMIN = frozenset(
    """
    bootstrap.controllers bootstrap.servers client.dns.lookup client.id config.providers connections.max.idle.ms
    default.api.timeout.ms enable.metrics.push metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
    metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms
    request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms sasl.client.callback.handler.class
    sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class
    sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
    sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
    security.protocol security.providers send.buffer.bytes socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms ssl.cipher.suites ssl.enabled.protocols
    ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
    ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
    ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
    """.split()  # noqa: SIM905
)

# The additional settings of producers and consumers, because programs share settings files.
PRODUCER_AND_CONSUMER = frozenset(
    """
    acks allow.auto.create.topics auto.commit.interval.ms auto.offset.reset batch.size buffer.memory check.crcs
    client.rack compression.gzip.level compression.lz4.level compression.type compression.zstd.level
    delivery.timeout.ms enable.auto.commit enable.idempotence exclude.internal.topics fetch.max.bytes
    fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol group.remote.assignor
    heartbeat.interval.ms interceptor.classes isolation.level key.deserializer key.serializer linger.ms
    max.block.ms max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms
    max.poll.records max.request.size metadata.max.idle.ms partition.assignment.strategy
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
    partitioner.ignore.keys session.timeout.ms share.acknowledgement.mode share.acquire.mode
    transaction.timeout.ms transaction.two.phase.commit.enable transactional.id value.deserializer
    value.serializer
    """.split()  # noqa: SIM905
)

# From Kafka 3.4 to 3.9.
_OLDER = frozenset({"auto.include.jmx.reporter"})
KNOWN = ADMIN | PRODUCER_AND_CONSUMER | _OLDER

# A ratio of `difflib`. With a lower ratio, settings of other programs would count as mistyped settings of Kafka.
_NEAR = 0.8


def nearest(key: str) -> str | None:
    """The setting that the user most likely meant with this unknown name, if any setting is similar.

    Case and the characters between words are ignored: `security_protocol` and `Security.Protocol` are similar.
    """
    words = ".".join("".join(c if c.isalnum() else " " for c in key.lower()).split())
    found = difflib.get_close_matches(words, sorted(KNOWN), n=1, cutoff=_NEAR)
    return found[0] if found else None
