"""Slack's errors in words, and as outcomes of a part. Pure; called by `channel.py` and `socket_mode.py`."""

from __future__ import annotations

from typing import Final, Literal

from switchboard.connectors.kernel.requests import NotAnswered, NotWritten
from switchboard.connectors.slack.api import SlackRefusal
from switchboard.ports.connector import Later, Outcome, Refused, SignInRefused, Uncertain

_SOON_S: Final = 2.0
_SIGNED_OUT_S: Final = 60.0
SIGNED_OUT: Final = frozenset(
    {"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "not_allowed_token_type"}
    | {"user_removed_from_team", "team_access_not_granted", "org_login_required"}
)
_PLACES: Final = {
    "app_token": "under Basic Information, App-Level Tokens, of the app at api.slack.com/apps",
    "bot_token": "under Install App of the app at api.slack.com/apps",
}
_BLOCKED: Final = {
    "not_in_channel": "the app is not in the channel: invite it there with /invite",
    "channel_not_found": "the channel does not exist, or the app cannot see it",
    "is_archived": "the channel is archived",
    "restricted_action": "the workspace does not let the app write in this channel",
    "restricted_action_read_only_channel": "only some people may write in this channel",
    "restricted_action_thread_only_channel": "the app may only write in threads of this channel",
    "restricted_action_non_threadable_channel": "this channel has no threads",
    "restricted_action_thread_locked": "the thread is locked",
    "messages_tab_disabled": "the app takes no direct messages: switch on its Messages Tab under App Home",
    "cannot_dm_bot": "the app cannot write to another bot",
    "user_disabled": "the person has left the workspace",
}
_TARGET: Final = frozenset({"thread_not_found", "message_not_found"})
_FINAL: Final = (
    frozenset({"access_denied", "ekm_access_denied", "enterprise_is_restricted", "file_deleted", "file_not_found"})
    | {"method_not_supported_for_channel_type", "missing_scope", "no_permission"}
    | _BLOCKED.keys()
    | _TARGET
)
"""What is asked for is not there, or not for us. All else may pass, also what a proxy says."""
_MARKUP: Final = frozenset(
    {"invalid_blocks", "invalid_blocks_format", "msg_too_long", "msg_blocks_too_long", "markdown_text_conflict"}
)
_UNCLEAR: Final = frozenset({"internal_error", "fatal_error", "service_unavailable", "request_timeout"})
"""Slack failed, perhaps after it had done it."""


def words_of_sign_in(error: SlackRefusal, secret: Literal["app_token", "bot_token"]) -> str | None:
    """Why a person must act; None if nobody can."""
    if error.code in SIGNED_OUT:
        return f"Slack does not accept the {secret} ({error.code}): copy it again, {_PLACES[secret]}"
    if error.code == "missing_scope":
        return f"the {secret} lacks the scope {error.needed or 'that is needed'}: get another, {_PLACES[secret]}"
    if error.code in ("forbidden_team", "link_disabled", "socket_mode_not_enabled"):
        return "Socket Mode is off: switch it on in the settings of the app, under Socket Mode"
    return None


def error_of(error: SlackRefusal) -> SignInRefused | OSError:
    """What a refusal of something that only asks means for the account."""
    why = words_of_sign_in(error, "bot_token")
    return SignInRefused(why) if why is not None else OSError(str(error))


def is_passing(error: SlackRefusal) -> bool:
    """Whether what only asks may succeed another time, perhaps after somebody has signed in again."""
    return error.code not in _FINAL


def outcome_of(error: SlackRefusal | NotWritten | NotAnswered) -> Outcome:
    """The outcome of a part that was not sent normally."""
    if isinstance(error, NotWritten):
        return Later(_SOON_S, str(error))
    if isinstance(error, NotAnswered) or error.code in _UNCLEAR:
        return Uncertain(str(error))
    if error.retry_after is not None:
        return Later(error.retry_after, str(error))
    if error.code in SIGNED_OUT:  # nothing is lost: somebody must sign in
        return Later(_SIGNED_OUT_S, f"Slack does not accept the bot_token ({error.code})")
    return _refusal_for(error)


def _refusal_for(error: SlackRefusal) -> Refused:
    if error.code == "missing_scope":
        return Refused(
            f"the app lacks the scope {error.needed}: add it under OAuth & Permissions, and reinstall the app"
        )
    if error.code in _BLOCKED:
        return Refused(_BLOCKED[error.code], "blocked")
    if error.code in _TARGET:
        return Refused(str(error), "target")
    return Refused(str(error), "markup" if error.code in _MARKUP else "other")


def is_thread_gone(error: SlackRefusal) -> bool:
    """Whether the message with which the thread began no longer exists."""
    return error.code in _TARGET
