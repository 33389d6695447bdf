"""OAUTHBEARER with client credentials (RFC 6749, section 4.4; KIP-768): tokens for brokers, from the token endpoint.

The first connection that needs a token requests it. A new token is requested when most of the lifetime is over. The
request has the client's secret, so a redirect is not followed. Source: `ClientCredentialsJwtRetriever`,
`HttpJwtRetriever`.
"""

from __future__ import annotations

import base64
import math
import re
import threading
import time
from typing import Any

from kafka.errors import SaslAuthenticationFailedError
from kafka.net.sasl.oauth import AbstractTokenProvider

from txnscan.kafka.client.connection import OAuthSettings
from txnscan.unique_json import unique_json

# The time limit of the whole request.
_SECONDS_MAX = 10.0
_PIECE_BYTES = 16 * 1024
_ANSWER_BYTES_MAX = 1024 * 1024
# The share of a token's lifetime after which a new token is requested.
_USED_SHARE = 0.8
_DEFAULT_LIFE_S = 60.0


# RFC 6750, section 2.1: the syntax of a token in a header, and in the SASL message of RFC 7628.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_SECONDS = re.compile(r"[0-9]{1,10}")


class TokenFailed(SaslAuthenticationFailedError):  # type: ignore[misc]
    """There is no token. The message is the reason, without secrets."""

    of_what = "token"


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """See `AbstractTokenProvider`. Safe to use from many threads."""

    def __init__(self, settings: OAuthSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._token = ""
        self._until_s = 0.0

    def token(self, seconds_max: float = _SECONDS_MAX) -> str:
        """A token with enough lifetime: the last token, or a new token, which arrives within seconds_max. Raises
        TokenFailed.
        """
        with self._lock:
            if time.monotonic() >= self._until_s:
                self._token, life_s = _asked_for(self._settings, min(_SECONDS_MAX, seconds_max))
                self._until_s = time.monotonic() + life_s * _USED_SHARE
            return self._token

    @property
    def last(self) -> str:
        """The last token, or an empty text."""
        return self._token

    def extensions(self) -> dict[str, str]:
        """The SASL extensions that are sent with the token."""
        return dict(self._settings.extensions)


def _asked_for(settings: OAuthSettings, seconds_max: float) -> tuple[str, float]:
    """A token, and its lifetime in seconds. Raises TokenFailed."""
    # Imported only here, because the import takes time and most connections need no token.
    import http.client
    import urllib.error
    import urllib.parse
    import urllib.request

    from txnscan.kafka.security.timed_http import opened

    quote = urllib.parse.quote_plus if settings.urlencoded else str
    credentials = f"{quote(settings.client_id)}:{quote(settings.client_secret)}"
    form = {"grant_type": "client_credentials"} | ({"scope": settings.scope} if settings.scope else {})
    request = urllib.request.Request(  # noqa: S310
        settings.token_url,
        urllib.parse.urlencode(form).encode(),
        {
            "Accept": "application/json",
            "Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )
    where = "sasl.oauthbearer.token.endpoint.url"
    try:
        with opened(request, seconds_max) as answer:
            token, life_s = _parsed(_body(answer))
    except urllib.error.HTTPError as error:
        if 300 <= error.code < 400:
            raise TokenFailed(f"{where} redirects to another address; set it to the final one") from None
        raise TokenFailed(
            f"{where} answered with HTTP status {error.code}; check client id, secret and scope"
        ) from None
    except (OSError, urllib.error.URLError) as error:
        why = getattr(error, "reason", error)
        raise TokenFailed(
            f"{where} cannot be reached: {getattr(why, 'strerror', None) or type(why).__name__}"
        ) from None
    except (http.client.HTTPException, ValueError):
        # This includes answers that are not HTTP.
        raise TokenFailed(f"{where} gave no token") from None
    return token, life_s


def _parsed(body: bytes) -> tuple[str, float]:
    """The token and its lifetime in seconds (RFC 6749, section 5.1). Raises ValueError for all that another program
    could read in another way.
    """
    returned = unique_json(body.decode())
    if not isinstance(returned, dict):
        raise ValueError("no object")
    token, life = returned.get("access_token"), returned.get("expires_in", _DEFAULT_LIFE_S)
    if not isinstance(token, str) or _TOKEN.fullmatch(token) is None:
        raise ValueError("no token")
    # Azure's older endpoints give the number as text.
    if isinstance(life, str) and _SECONDS.fullmatch(life):
        life = int(life)
    if isinstance(life, bool) or not isinstance(life, int | float) or not 0 <= life < math.inf:
        raise ValueError("no lifetime")
    return token, float(life)


def _body(answer: Any) -> bytes:
    """The body of an answer. Raises ValueError if it is too long."""
    body = b""
    while piece := answer.read1(_PIECE_BYTES):
        body += piece
        if len(body) > _ANSWER_BYTES_MAX:
            raise ValueError("too long")
    return body
