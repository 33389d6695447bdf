"""Sends notifications through Apprise, to any of the services that it knows: mail, Teams, Telegram, SMS.

An Apprise URL has tokens in every part behind its scheme, so only the scheme is ever shown. Apprise does not report the
status of an answer, so each failure counts as temporary.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from txnscan.config import ConfigError
from txnscan.watch.notifier import TIMEOUT_S, NotSent, Target

if TYPE_CHECKING:
    from apprise import AppriseAsset


def parse_apprise_url(text: str, option: str) -> str:
    """The URL of one service. Raises ConfigError, without the URL in its message."""
    if find_spec("apprise") is None:
        raise ConfigError(option, "needs the package apprise; install txnscan[apprise]")
    from apprise import Apprise

    if not text.isprintable() or Apprise.instantiate(text, asset=_asset()) is None:
        raise ConfigError(option, "is no URL of a service that Apprise knows, such as mailtos://... or tgram://...")
    return text


def send_through_apprise(target: Target, body: bytes) -> None:
    """Sends a body of the shape "apprise". Raises NotSent."""
    from apprise import Apprise, NotifyFormat, NotifyType

    message = json.loads(body)
    # `Apprise.add` would split a text with several URLs.
    service = Apprise.instantiate(target.url, asset=_asset())
    sent = service is not None and Apprise(service, asset=_asset()).notify(
        message["body"],
        title=message["title"],
        notify_type=NotifyType(message["type"]),
        body_format=NotifyFormat.TEXT,
        timeout=TIMEOUT_S,
    )
    if not sent:
        raise NotSent("Apprise could not deliver it", passing=True)


@cache
def _asset() -> AppriseAsset:
    """Settings of Apprise: it loads no further plugins, writes no files and follows no redirects."""
    from apprise import AppriseAsset

    return AppriseAsset(
        app_id="txnscan", app_desc="txnscan", app_url="", http_redirects=False, plugin_paths=[], storage_mode="memory"
    )
