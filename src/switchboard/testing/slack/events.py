"""Events as Slack sends them, from messages of the workspace. Pure. Called by `people.py` and `methods.py`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Final

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.testing.slack.checks import pings_in
from switchboard.testing.slack.workspace import APP, BOT_USER, PREFIXES, TEAM, Conversation, Workspace

_VERIFICATION_TOKEN: Final = "test-verification-token"  # noqa: S105  of nobody
"""By which apps without signatures know Slack."""
_SCOPES: Final[Mapping[str, str]] = {"app_mention": "app_mentions:read", "reaction_added": "reactions:read"}
"""What an app must have to get an event; for messages, it depends on the conversation."""


class Events:
    """Tells the app what happens, if it may know it.

    `send` gets each event with what surrounds it, `send_press` each press of a button. `scopes` are those that were
    granted. One mention is two events, in an order that `rng` chooses.
    """

    def __init__(
        self,
        workspace: Workspace,
        scopes: Collection[str],
        rng: Random,
        send: Callable[[JsonObject], None],
        send_press: Callable[[JsonObject], None],
    ) -> None:
        self._workspace, self._scopes, self._rng, self._send = workspace, scopes, rng, send
        self._send_press = send_press

    def tell_message(self, conversation: Conversation, message: JsonMapping) -> None:
        """A new message; `app_mention`, too, if it mentions the app outside of direct chats."""
        told = [self._as_message(conversation, message)]
        if f"@{BOT_USER}" in pings_in(message.get("text", "")) and conversation.kind != "im" and "user" in message:
            kept = ("user", "ts", "client_msg_id", "text", "team", "blocks", "thread_ts", "parent_user_id", "files")
            mention = {key: message[key] for key in kept if key in message}
            told.append({"type": "app_mention", **mention, "channel": conversation.id, "event_ts": message["ts"]})
            self._rng.shuffle(told)
        for event in told:
            self._tell_event(conversation, event)

    def tell_change(self, conversation: Conversation, before: JsonMapping, after: JsonMapping) -> None:
        """A message is another now, by an edit or by a preview of a link."""
        about = {"message": _without_metadata(after), "previous_message": _without_metadata(before)}
        self._tell_hidden(conversation, {"subtype": "message_changed", **about})

    def tell_deletion(self, conversation: Conversation, before: JsonMapping) -> None:
        """A message is gone."""
        about = {"deleted_ts": before["ts"], "previous_message": _without_metadata(before)}
        self._tell_hidden(conversation, {"subtype": "message_deleted", **about})

    def tell_reaction(self, conversation: Conversation, message: JsonMapping, user: str, reaction: str) -> None:
        """Somebody has reacted to a message."""
        item = {"type": "message", "channel": conversation.id, "ts": message["ts"]}
        about = {"user": user, "reaction": reaction, "item": item, "item_user": message.get("user", "")}
        self._tell_event(conversation, {"type": "reaction_added", **about, "event_ts": self._workspace.next_ts()})

    def tell_press(
        self, conversation: Conversation, message: JsonMapping, value: str, person: JsonMapping
    ) -> JsonObject:
        """Somebody has pressed a button of a message."""
        blocks = [one for one in message.get("blocks", ()) if one["type"] == "actions"]
        [button] = [one for block in blocks for one in block["elements"] if one["value"] == value]
        user = {"id": person["id"], "username": person["name"], "name": person["name"], "team_id": person["team_id"]}
        thread = {"thread_ts": message["thread_ts"]} if "thread_ts" in message else {}
        name = "directmessage" if conversation.kind == "im" else conversation.name
        press = {
            "type": "block_actions",
            "user": user,
            "api_app_id": APP,
            "token": _VERIFICATION_TOKEN,
            "response_url": f"https://hooks.slack.com/actions/{TEAM}/1/{_VERIFICATION_TOKEN}",
            "team": {"id": TEAM, "domain": "house"},
            "container": {"type": "message", "message_ts": message["ts"], "channel_id": conversation.id, **thread},
            "trigger_id": f"{self._workspace.next_number()}.0.trigger",
            "channel": {"id": conversation.id, "name": name},
            "message": _without_metadata(message),
            "state": {"values": {}},
            "actions": [{**button, "block_id": "actions", "action_ts": self._workspace.next_ts()}],
        }
        self._send_press(press)
        return press

    def _tell_hidden(self, conversation: Conversation, content: JsonMapping) -> None:
        ts = self._workspace.next_ts()
        event = {"type": "message", **content, "channel": conversation.id, "hidden": True, "ts": ts, "event_ts": ts}
        self._tell_event(conversation, {**event, "channel_type": conversation.kind})

    def _as_message(self, conversation: Conversation, message: JsonMapping) -> JsonObject:
        about = {"channel": conversation.id, "event_ts": message["ts"], "channel_type": conversation.kind}
        return {**_without_metadata(message), **about}

    def _tell_event(self, conversation: Conversation, event: JsonObject) -> None:
        needed = _SCOPES.get(event["type"], f"{PREFIXES[conversation.kind]}:history")
        if BOT_USER in conversation.members and needed in self._scopes:
            self._send(self._as_payload(event))

    def _as_payload(self, event: JsonObject) -> JsonObject:
        about = {"token": _VERIFICATION_TOKEN, "team_id": TEAM, "context_team_id": TEAM, "context_enterprise_id": None}
        installed = {"enterprise_id": None, "team_id": TEAM, "user_id": BOT_USER, "is_bot": True}
        return {
            **about,
            "api_app_id": APP,
            "event": event,
            "type": "event_callback",
            "event_id": f"Ev0{self._workspace.next_number():04d}",
            "event_time": int(self._workspace.clock()),
            "authorizations": [{**installed, "is_enterprise_install": False}],
            "is_ext_shared_channel": False,
            "event_context": f"4-{event.get('event_ts', '')}",
        }


def _without_metadata(message: JsonMapping) -> JsonObject:
    return {key: value for key, value in message.items() if key != "metadata"}
