"""The OpenAPI's names for tags and schemas, for developers who do not know the code.

`openapi.py` applies it. A class has a name for the readers of the code, and one here, or made by a rule, for those of
the API; its docstring is for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TAGS: Final[Mapping[str, str]] = {
    "ingest": "Submit messages: one, or up to 200 at once.",
    "messages": "Read messages, their replies, and the reasons for their routing.",
    "blobs": "Files of messages: upload them before the message, read them after it.",
    "connectors": "For connectors: lease replies, send them, report the outcome; and heartbeats.",
    "webhooks": "Where other programs post their events. Each is verified as its account says, without a token.",
    "operations": "Watch deliveries, lanes, the balance of all messages and metrics.",
    "dead letters": "Messages that could not be delivered: read, reroute or close them.",
    "rules": "Routing rules, their versions, tests and standard operating procedures (SOPs).",
    "teams": "Teams and their members, as they are in force.",
    "agents": "Remote butlers: heartbeats, quarantine and endpoints.",
    "models": "Models that classify messages: their state, cost and choices, and corrections of these.",
    "channels": "Accounts of channels on the server's machine: add, test, pause and remove them. Operators only.",
    "pairing": "Who may write to restricted endpoints. Operators only.",
    "tasks": "What butlers say or do at a time, and what became of it. Operators only.",
    "people": "Which handles are one person, and in which groups that person is. Operators only.",
    "approvals": "What butlers ask people: calls of tools to approve, and questions.",
    "plans": "What butlers plan for messages that need several steps. Operators only.",
    "memory": "What butlers have learned from people, and summaries of long conversations. Operators only.",
    "mcp servers": "Programs whose tools butlers use, and acceptance of tools that change. Operators only.",
    "modules": "Calls of butlers' tools outside turns, and their results.",
    "tokens": "Issue and revoke tokens. Operators only.",
    "status": "How it is, what waits for people, and conversations. Operators only.",
    "web": "Links that sign in on the page, who is signed in, and the first run. Operators only.",
    "audit": "Refused requests, and what operators did. Operators only.",
    "public": "Health and JSON Schemas. No token is required.",
}

_NAMES: Final[Mapping[str, str]] = {
    "AcceptedBody": "Accepted",
    "BeatBody": "ButlerHeartbeat",
    "BeatenRule": "OutrankedRule",
    "Blast": "BlastRadius",
    "BulkOutcome": "BulkResult",
    "CaseFile": "RouteTestPage",
    "CaseView": "RouteTest",
    "ChangeView": "RuleChange",
    "DeadLetterFilterBody": "DeadLetterFilter",
    "ConversationRow": "Conversation",
    "DiffAnswer": "RuleDiff",
    "Difference": "RoutingDifference",
    "DryRun": "RoutingExplanation",
    "DryRunBody": "RoutingQuestion",
    "ErrorBody": "Error",
    "ErrorInfo": "ErrorDetail",
    "Failure": "BulkFailure",
    "Found": "IdMatch",
    "FoundIds": "IdMatches",
    "Handled": "HandleResult",
    "HeartbeatBody": "ConnectorHeartbeat",
    "Linted": "LintResult",
    "Logged": "Classification",
    "MadeDelivery": "CreatedDelivery",
    "ModelsView": "ModelList",
    "MoveBody": "EndpointRequest",
    "NewRuleBody": "NewRule",
    "OrderBody": "ButlerRequest",
    "OutboxNext": "LeaseRequest",
    "OutboxRow": "Reply",
    "OutboxRows": "ReplyPage",
    "Put": "QuarantineResult",
    "Quarantined": "QuarantinedEvent",
    "QuarantinedDetail": "QuarantinedEventDetail",
    "Read": "ClassificationLogEntry",
    "ReceiptBody": "Receipt",
    "ReplyView": "MessageReply",
    "Rerouted": "RerouteResult",
    "Resumed": "ResumedLane",
    "Revoked": "RevokedToken",
    "RuleSetVersion": "RulesVersion",
    "ShownStep": "TurnStep",
    "Simulated": "SimulatedReroute",
    "SopRules": "Sop",
    "Standing": "RemoteButler",
    "TargetBody": "Target",
    "TestAnswer": "TestResults",
    "TestsBody": "TestFile",
    "TokenIssued": "IssuedToken",
    "UsageView": "UsageReport",
    "VersionPage": "RulesVersionPage",
    "VersionView": "RulesVersionDetail",
    "WrittenRule": "CreatedRule",
    "WrittenRuleView": "RuleEdit",
    "WrittenRules": "RulesEdit",
}
_ENDINGS: Final = (("View", ""), ("List", "Page"), ("Body", "Request"), ("Answer", "Result"))


def published_name(name: str) -> str:
    """The name of a schema, given that of its class."""
    if name in _NAMES:
        return _NAMES[name]
    name = name.removeprefix("Shown")
    return next((name.removesuffix(end) + ours for end, ours in _ENDINGS if name.endswith(end)), name)
