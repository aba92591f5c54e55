"""The other side of the app: what people do in Slack, as calls of a test; each returns what it created."""

from __future__ import annotations

import re
import uuid
from typing import Final

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.testing.slack.events import Events
from switchboard.testing.slack.workspace import ANN, BOT_USER, TEAM, Conversation, Kind, Workspace

_MENTION: Final = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^>]*)?>")


class People:
    """People's actions. Texts are as Slack stores them: `<@U0BOT>` mentions the app, `&amp;` is an ampersand."""

    def __init__(self, workspace: Workspace, events: Events) -> None:
        self._workspace, self._events = workspace, events

    def person(self, user: str, name: str, *, team: str = TEAM) -> str:
        """Somebody else, with this id; one of another team is there by Slack Connect."""
        self._workspace.add_person(user, name, team=team)
        return user

    def channel(
        self, name: str = "general", *, kind: Kind = "channel", users: tuple[str, ...] = (ANN,)
    ) -> Conversation:
        """A conversation that the app is in."""
        return self._workspace.add_conversation(name, kind, BOT_USER, *users)

    def direct_chat(self, user: str = ANN) -> Conversation:
        """The direct chat of a person with the app."""
        return self._workspace.direct_chat(user)

    def say(
        self, text: str, place: Conversation | None = None, *, user: str = ANN, thread: str = "", **more: object
    ) -> JsonObject:
        """Write a message, in a direct chat unless a place is given; `thread` is the `ts` of its root.

        `more` are further fields, such as `blocks`.
        """
        return self.put({**self._as_written(user, text), **more}, place, thread=thread)

    def put(self, content: JsonMapping, place: Conversation | None = None, *, thread: str = "") -> JsonObject:
        """A message of any content, such as one of another bot, or one that Slack itself writes."""
        where = place or self.direct_chat()
        message = self._workspace.post(where, content, thread)
        self._events.tell_message(where, message)
        return message

    def broadcast(self, text: str, place: Conversation, thread: str, *, user: str = ANN) -> JsonObject:
        """A reply that is shown in the channel, too; Slack tells of it twice."""
        content = {**self._as_written(user, text), "subtype": "thread_broadcast"}
        message = self.put({**content, "root": dict(place.messages[thread])}, place, thread=thread)
        self._events.tell_change(place, message, message)
        return message

    def share(
        self, data: bytes, name: str, media_type: str, place: Conversation | None = None, **more: object
    ) -> JsonObject:
        """A message with a file; `more` are further fields of the file, such as `subtype` and `duration_ms`.

        With `file_access="check_file_info"` the message does not tell what the file is, as of Slack Connect.
        """
        about = self._workspace.add_file(ANN, name, media_type, data, **more).about
        shown = about
        if more.get("file_access") == "check_file_info":
            shown = {key: about[key] for key in ("id", "file_access", "created", "timestamp", "user")}
        content = {**self._as_written(ANN, ""), "subtype": "file_share", "files": [shown], "upload": False}
        return self.put(content, place)

    def edit(self, message: JsonMapping, text: str) -> JsonObject:
        """Change the text of a message."""
        edited = {"user": message["user"], "ts": self._workspace.next_ts()}
        return self._change_message(message, {"text": text, "blocks": blocks_of(text), "edited": edited})

    def preview(self, message: JsonMapping) -> JsonObject:
        """Slack shows what a link in the message leads to, which changes it without an edit."""
        shown = {"id": 1, "from_url": "https://example.org/", "title": "An example", "fallback": "An example"}
        return self._change_message(message, {"attachments": [shown]})

    def delete(self, message: JsonMapping) -> None:
        """Delete a message; one with replies stays as a tombstone, and Slack tells of it as of a change."""
        place = self._place_of(message)
        before = place.messages[message["ts"]]
        if before.get("reply_count"):
            gone = {"subtype": "tombstone", "text": "This message was deleted.", "blocks": []}
            after = place.messages[message["ts"]] = {**before, **gone, "user": "USLACKBOT"}
            self._events.tell_change(place, before, after)
        else:
            del place.messages[message["ts"]]
            self._events.tell_deletion(place, before)

    def react(self, message: JsonMapping, reaction: str = "+1", *, user: str = ANN) -> None:
        """React to a message."""
        self._events.tell_reaction(self._place_of(message), message, user, reaction)

    def press(self, message: JsonMapping, value: str, *, user: str = ANN) -> JsonObject:
        """Press the button of a message of the app that has this value; the app must acknowledge it within 3 s."""
        place = self._place_of(message)
        shown = place.messages[message["ts"]]
        return self._events.tell_press(place, shown, value, self._workspace.people[user])

    def invite_app(self, place: Conversation, *, user: str = ANN) -> JsonObject:
        """The app is invited to a channel; from then on it may read all of its history."""
        place.members.add(BOT_USER)
        joined = {"subtype": "channel_join", "user": BOT_USER, "inviter": user}
        return self.put({**joined, "text": f"<@{BOT_USER}> has joined the channel"}, place)

    def remove_app(self, place: Conversation) -> None:
        """The app is removed from a channel, and hears nothing of it any more."""
        place.members.discard(BOT_USER)

    def _change_message(self, message: JsonMapping, changes: JsonMapping) -> JsonObject:
        place = self._place_of(message)
        before = place.messages[message["ts"]]
        after = place.messages[message["ts"]] = {**before, **changes}
        self._events.tell_change(place, before, after)
        return after

    def _place_of(self, message: JsonMapping) -> Conversation:
        [found] = [one for one in self._workspace.conversations.values() if message["ts"] in one.messages]
        return found

    def _as_written(self, user: str, text: str) -> JsonObject:
        team = self._workspace.people[user]["team_id"]
        content: JsonObject = {
            "user": user,
            "text": text,
            "client_msg_id": str(uuid.uuid4()),
            "blocks": blocks_of(text),
        }
        return content if team == TEAM else {**content, "user_team": team, "source_team": team}


def blocks_of(text: str) -> list[JsonObject]:
    """The blocks that Slack makes of what a person writes."""
    if not text:
        return []
    elements: list[JsonObject] = []
    for n, piece in enumerate(_MENTION.split(text)):
        if n % 2:
            elements.append({"type": "user", "user_id": piece})
        elif piece:
            plain = piece.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
            elements.append({"type": "text", "text": plain})
    return [{"type": "rich_text", "block_id": "b1", "elements": [{"type": "rich_text_section", "elements": elements}]}]
