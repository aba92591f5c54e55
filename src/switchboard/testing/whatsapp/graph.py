"""The part of the Graph API that a number needs: messages, files, the number itself, and where webhooks are posted.

Called by `server.py` with checked requests. Out: the answer, or GraphError. Next: `drafts.py` for what a message may
be, `business.py` for the state.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from msgspec import Struct

from switchboard.domain.json_values import JsonObject
from switchboard.ports.raw import child
from switchboard.testing.platform_server import Upload
from switchboard.testing.whatsapp.business import BusinessMessage, BusinessNumber, KnownPerson, WhatsAppBusiness
from switchboard.testing.whatsapp.drafts import check_message, check_upload
from switchboard.testing.whatsapp.errors import GraphError, unknown_object
from switchboard.testing.whatsapp.limits import MessageLimits
from switchboard.testing.whatsapp.people import WhatsAppPeople
from switchboard.testing.whatsapp.posting import WebhookPoster
from switchboard.testing.whatsapp.webhooks import Pricing, Status, WebhookSender

MESSAGING: Final = "whatsapp_business_messaging"
MANAGEMENT: Final = "whatsapp_business_management"
APP: Final = "670843887433847"
_PRODUCT: Final = "whatsapp"
_PORTFOLIO: Final = "506914307656634"
_PHONE: Final = re.compile(r"\+?\d{5,20}", re.ASCII)
_USUAL: Final = (
    *("verified_name", "code_verification_status", "display_phone_number", "quality_rating"),
    *("platform_type", "throughput", "webhook_configuration"),
)
_UNSAID: Final = frozenset(
    {"account_mode", "certificate", "conversational_automation", "country_code", "country_dial_code", "status"}
    | {"eligibility_for_api_business_global_search", "is_official_business_account", "is_pin_enabled", "name_status"}
    | {"is_preverified_number", "last_onboarded_time", "new_certificate", "new_name_status", "quality_score"}
    | {"is_on_biz_app", "search_visibility", "whatsapp_business_manager_messaging_limit"}
)
"""Fields of which nothing is known here, as Meta leaves out what has no value."""


class GraphRequest(Struct, frozen=True):
    """A request: the object that its path names, its query, its body as JSON or as a form, and a file."""

    node: str
    query: Mapping[str, str]
    body: JsonObject
    upload: Upload | None = None


class GraphRoute(Struct, frozen=True):
    """What a request does; `permission`: what the token needs."""

    name: str
    permission: str
    run: Callable[[GraphRequest], Awaitable[JsonObject]]


class Graph:
    """The routes, by `find`. `statuses`: what is reported of a message that arrives, besides failures."""

    def __init__(
        self,
        business: WhatsAppBusiness,
        sender: WebhookSender,
        hooks: WebhookPoster,
        people: WhatsAppPeople,
        limits: MessageLimits | None,
    ) -> None:
        self._business, self._sender, self._hooks, self._people = business, sender, hooks, people
        self._limits = limits
        self.statuses: tuple[Status, ...] = ("sent", "delivered")
        self.refuses_late = True
        """Whether a message outside the window is accepted, and fails later; otherwise it is refused at once."""
        self.document_types: set[str] | None = None
        """The types of documents that can be uploaded; None: any, as Meta's pages do not agree."""
        self.blocked_for: GraphError | None = None
        """Why the number can send nothing."""
        self.hasty = 0
        """How many messages came while the account was limited, later than a second after the first refusal."""
        self._limit_s = 0.0
        self._limited_at: float | None = None
        self.read: list[str] = []
        """The messages that were marked as read."""
        self.typing: list[str] = []
        """Those of them below which the business was shown to be writing."""
        self._routes = {
            ("GET", "number", ""): GraphRoute("GET number", MANAGEMENT, self._tell_number),
            ("POST", "number", ""): GraphRoute("POST number", MANAGEMENT, self._set_webhook),
            ("POST", "number", "messages"): GraphRoute("POST messages", MESSAGING, self._take_message),
            ("POST", "number", "media"): GraphRoute("POST media", MESSAGING, self._take_upload),
            ("GET", "media", ""): GraphRoute("GET media", MESSAGING, self._tell_media),
            ("DELETE", "media", ""): GraphRoute("DELETE media", MESSAGING, self._delete_media),
            **{
                (verb, "account", "subscribed_apps"): GraphRoute(
                    f"{verb} subscribed_apps", MANAGEMENT, self._answer_subscriptions(verb)
                )
                for verb in ("GET", "POST", "DELETE")
            },
        }

    def limit_account(self, seconds: float) -> None:
        """Refuse the next message, and all others for so long after it, by a limit of the account (80007)."""
        self._limit_s, self._limited_at = seconds, None

    def find(self, verb: str, node: str, edge: str) -> GraphRoute:
        """The route of a request. Raises GraphError."""
        found = self._routes.get((verb, self._kind_of(node), edge))
        if found is None:
            raise unknown_object(node)
        return found

    def _kind_of(self, node: str) -> str:
        if node in self._business.numbers:
            return "number"
        if node == self._business.account_id:
            return "account"
        return "media" if self._business.find_media(node) else ""

    async def _tell_number(self, asked: GraphRequest) -> JsonObject:
        number = self._business.numbers[asked.node]
        known = self._about_number(number)
        wanted = asked.query["fields"].split(",") if asked.query.get("fields") else list(_USUAL)
        if unknown := [one for one in wanted if one not in known and one not in _UNSAID]:
            raise GraphError(100, title=f"Tried accessing nonexisting field ({unknown[0]}) on node type (PhoneNumber)")
        return {name: known[name] for name in wanted if name in known} | {"id": number.number_id}

    def _about_number(self, number: BusinessNumber) -> JsonObject:
        urls = {"phone_number": number.override, "application": self._hooks.callback_url}
        can_send = "AVAILABLE" if self.blocked_for is None else "BLOCKED"
        ids = {"PHONE_NUMBER": number.number_id, "WABA": self._business.account_id, "BUSINESS": _PORTFOLIO, "APP": APP}
        entities = [{"entity_type": kind, "id": one, "can_send_message": can_send} for kind, one in ids.items()]
        return {
            "id": number.number_id,
            "verified_name": number.name,
            "code_verification_status": "VERIFIED",
            "display_phone_number": number.display,
            "quality_rating": "GREEN",
            "platform_type": "CLOUD_API",
            "throughput": {"level": "STANDARD"},
            "webhook_configuration": {kind: url for kind, url in urls.items() if url},
            "health_status": {"can_send_message": can_send, "entities": entities},
        }

    async def _set_webhook(self, asked: GraphRequest) -> JsonObject:
        given = child(asked.body, "webhook_configuration")
        url = given.get("override_callback_uri")
        if not isinstance(url, str):
            raise GraphError(100, title="The parameter webhook_configuration is required.")
        if url:
            await self._hooks.verify_url(url, str(given.get("verify_token", "")))
        self._business.numbers[asked.node].override = url
        self._hooks.hurry()
        return {"success": True}

    def _answer_subscriptions(self, verb: str) -> Callable[[GraphRequest], Awaitable[JsonObject]]:
        async def subscribe(_: GraphRequest) -> JsonObject:
            if verb != "GET":
                self._business.subscribed = verb == "POST"
                return {"success": True}
            about = {"id": APP, "name": "House", "link": f"https://www.facebook.com/games/?app_id={APP}"}
            return {"data": [{"whatsapp_business_api_data": about}] if self._business.subscribed else []}

        return subscribe

    # Files ------------------------------------------------------------------------------------------------------------

    async def _take_upload(self, asked: GraphRequest) -> JsonObject:
        file = asked.upload
        if asked.body.get("messaging_product") != _PRODUCT or file is None:
            raise GraphError(100, title="The parameter messaging_product is required." if file else "No file uploaded")
        known = self.document_types
        if known is not None and not re.match("image/|audio/|video/", file.media_type) and file.media_type not in known:
            told = f"Param file must be a file with one of the following types: {', '.join(sorted(known))}. "
            raise GraphError(100, title=f"{told}Received file of type '{file.media_type}'.")
        check_upload(file.media_type, len(file.data))
        return {"id": self._business.store(file.media_type, file.data, file.filename).media_id}

    async def _tell_media(self, asked: GraphRequest) -> JsonObject:
        media = self._business.media[asked.node]
        about = {"mime_type": media.media_type, "sha256": media.hash, "file_size": len(media.data), "id": asked.node}
        return {"messaging_product": "whatsapp", "url": self._business.sign_url(media), **about}

    async def _delete_media(self, asked: GraphRequest) -> JsonObject:
        del self._business.media[asked.node]
        return {"success": True}

    # Messages ---------------------------------------------------------------------------------------------------------

    async def _take_message(self, asked: GraphRequest) -> JsonObject:
        if asked.body.get("messaging_product") != _PRODUCT:
            raise GraphError(100, title="The parameter messaging_product is required.")
        return self._mark_read(asked) if "status" in asked.body else self._send(asked)

    def _mark_read(self, asked: GraphRequest) -> JsonObject:
        wamid, indicator = str(asked.body.get("message_id")), asked.body.get("typing_indicator")
        if asked.body["status"] != "read" or self._business.heard.get(wamid) != asked.node:
            raise GraphError(131009, "message_id is no message that was sent to this number")
        if indicator is not None and indicator != {"type": "text"}:
            raise GraphError(131009, "typing_indicator must be of the type text")
        self.read.append(wamid)
        self.typing += [wamid] if indicator is not None else []
        return {"success": True}

    def _send(self, asked: GraphRequest) -> JsonObject:
        body, number = asked.body, self._business.numbers[asked.node]
        if self.blocked_for is not None:
            raise self.blocked_for
        self._check_account_limit()
        to, recipient = body.get("to"), body.get("recipient")
        if not to and not recipient:
            raise GraphError(100, title="The parameter to is required.")
        check_message(body, self._business.find_media)
        self._check_context(body)
        self._check_template(body)
        if self._limits is not None:
            self._limits.spend(number.number_id, str(to or recipient))
        known = self._business.find_phone(str(to)) if to else self._business.find_user(str(recipient))
        failed = self._why_failing(known, number, body)
        if failed == 131047 and not self.refuses_late:
            raise GraphError(131047, "More than 24 hours have passed since the customer last replied to this number.")
        wamid = self._sender.next_wamid()
        is_dropped = bool(to) and not _PHONE.fullmatch(str(to))  # reported of ids in `to`: nobody hears of it again
        person = None if known is None or is_dropped else known.person
        message = BusinessMessage(wamid, number.number_id, body, person, None if is_dropped else failed)
        self._business.sent.append(message)
        if not is_dropped:
            self._report_outcome(message, number)
        about = {"input": str(to or recipient)} | ({"wa_id": str(to).removeprefix("+")} if to else {})
        about |= {"user_id": known.person.user_id} if known is not None and known.person.user_id else {}
        return {"messaging_product": "whatsapp", "contacts": [about], "messages": [{"id": wamid}]}

    def _check_account_limit(self) -> None:
        if not self._limit_s:
            return
        now = self._business.clock()
        if self._limited_at is None:
            self._limited_at = now
        since = now - self._limited_at
        if since >= self._limit_s:
            self._limit_s = 0.0
            return
        self.hasty += since > 1.0
        raise GraphError(80007, "The WhatsApp Business Account has reached its rate limit.")

    def _check_context(self, body: JsonObject) -> None:
        answered = child(body, "context").get("message_id")
        known = {one.wamid for one in self._business.sent} | self._business.heard.keys()
        if answered is not None and answered not in known:
            raise GraphError(131009, "context.message_id is no message of this number")

    def _check_template(self, body: JsonObject) -> None:
        if body.get("type") == "template":
            about = child(body, "template")
            if (about.get("name"), child(about, "language").get("code")) not in self._business.templates:
                raise GraphError(132001, "template name does not exist in this language")

    def _why_failing(self, known: KnownPerson | None, number: BusinessNumber, body: JsonObject) -> int | None:
        if known is None or known.has_blocked:
            return 131026
        is_free_form = body.get("type") != "template"
        return 131047 if is_free_form and not self._business.is_window_open(known, number.number_id) else None

    def _report_outcome(self, message: BusinessMessage, number: BusinessNumber) -> None:
        if message.failed is not None:
            self._people.report(message, "failed", message.failed)
            return
        pricing = self._price_of(message, number).as_json()
        for status in self.statuses:
            value = self._people.report(message, status)
            value["statuses"][0]["pricing"] = pricing

    def _price_of(self, message: BusinessMessage, number: BusinessNumber) -> Pricing:
        """The first answers of a month are free; templates never are."""
        if message.content.get("type") == "template":
            return Pricing("utility", "regular")
        number.free_left -= 1
        return Pricing("service", "free_customer_service" if number.free_left >= 0 else "regular")
