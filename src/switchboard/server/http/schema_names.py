"""What the OpenAPI calls tags and schemas, for developers who know nothing of the code behind them.

`openapi.py` applies it: a class of the code has a name and a docstring for its readers, and one of each here for those
of the API. A test fails for a schema that is not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TAGS: Final[Mapping[str, str]] = {
    "ingest": "Submit messages: one, or up to 200 at once.",
    "messages": "Read messages, their replies, and the reasons for their routing.",
    "connectors": "For connectors: lease replies, send them, report the outcome; and heartbeats.",
    "operations": "Watch deliveries, lanes, the balance of all messages and metrics.",
    "dead letters": "Messages that could not be delivered: read, reroute or close them.",
    "rules": "Routing rules, their versions, tests and standard operating procedures (SOPs).",
    "teams": "Teams and their members, as they are in force.",
    "agents": "Remote butlers: heartbeats, quarantine and endpoints.",
    "models": "Models that classify messages: their state, cost and choices, and corrections of these.",
    "tokens": "Issue and revoke tokens. Operators only.",
    "audit": "Refused requests, and what operators did. Operators only.",
    "public": "Health and JSON Schemas. No token is required.",
}

SCHEMAS: Final[Mapping[str, tuple[str, str]]] = {
    "AcceptedBody": (
        "Accepted",
        "The message is stored. A duplicate has the id of the first message and no triage fields.",
    ),
    "AgentList": ("AgentPage", "By id. `next_cursor` is null on the last page."),
    "AgentView": (
        "Agent",
        "A member of a team, with the number of its deliveries by state. "
        "The last four fields are null unless it is a remote butler.",
    ),
    "Attachment": (
        "Attachment",
        "The metadata of an attachment. Its bytes stay with the platform or where `storage_ref` points.",
    ),
    "Attempt": (
        "Attempt",
        "One run of a butler on a delivery. `usage` lists tokens and cost per model, null if no model was asked; "
        "`stop_reason` says why the run was stopped early.",
    ),
    "AuditEntry": ("AuditEntry", "Something that an operator did, or a request that was refused."),
    "AuditList": ("AuditPage", "Newest first. `next_cursor` is null on the last page."),
    "BacktestBody": (
        "BacktestRequest",
        "Which stored messages to route again (the newest `last`, or those of the last `days`), "
        "and by what: a rule file (`document`) or `changes`.",
    ),
    "BalanceView": ("Balance", "Counts by state; the states add up to `accepted`."),
    "BatchAnswer": ("BatchResult", "A result or an error per envelope, in the order of the request."),
    "BeatBody": (
        "ButlerHeartbeat",
        "`butler.heartbeat.v1`. Omitted fields keep their last value. Only an operator sets `system_id`.",
    ),
    "BeatenRule": ("OutrankedRule", "A rule that matched too but came later; `by` is what decided between the two."),
    "Blast": (
        "BlastRadius",
        "The effect of a change on stored messages. `complete` is false if not all messages could be examined.",
    ),
    "BooksView": (
        "Books",
        "The balance per message and, in `targets`, per message and butler. "
        "`stale` is true if it is more than five minutes old.",
    ),
    "BulkBody": (
        "BulkRequest",
        "Reroute or handle all pending dead letters that match a filter, oldest first. "
        "A reroute takes `reason`, closing takes `resolution`.",
    ),
    "BulkOutcome": (
        "BulkResult",
        "`matched` counts the dead letters from `cursor` on. `would` lists where a dry run would send them. "
        "`next_cursor` is null when all have been processed.",
    ),
    "CapView": ("Cap", "A daily limit: what is spent, what running sessions hold, and what is left."),
    "CaseFile": ("RouteTestPage", "Corrections as cases for `POST /v1/rules/test`, newest first."),
    "CaseView": ("RouteTest", "The facts of a message, and the butler that should get it."),
    "ChangeView": (
        "RuleChange",
        "What was done to a rule: `before` is null if it is new, `after` if it was removed; "
        "`fields` has the old and the new value of each field that differs.",
    ),
    "ClassificationPage": ("ClassificationPage", "Newest message first. `next_cursor` is null on the last page."),
    "Connector": ("Connector", "The last heartbeat of an endpoint. `liveness` follows from its age."),
    "ConnectorList": ("ConnectorPage", "By channel and endpoint. `next_cursor` is null on the last page."),
    "Control": (
        "Control",
        "What the sender asks of Switchboard. `idempotency_key` identifies the event instead of its own id, "
        "as the header Idempotency-Key does.",
    ),
    "Corrected": (
        "CorrectionResult",
        "`already` is true if the same correction was made before. "
        "`decision_n` is null if no further delivery was needed.",
    ),
    "CorrectionBody": ("CorrectionRequest", "The butler that the message was for."),
    "DeadEnd": ("DeadEnd", "A team in which no butler gets the message, and why."),
    "DeadLetterDetail": (
        "DeadLetterDetail",
        "A dead letter with its envelope and original bytes, its notices, and where it was rerouted. "
        "A team that received only a part of the message sees that part, without the bytes.",
    ),
    "DeadLetterFilterBody": (
        "DeadLetterFilter",
        "All given conditions must hold. `since` is inclusive, `until` exclusive.",
    ),
    "DeadLetterPage": ("DeadLetterPage", "Newest first. `next_cursor` is null on the last page."),
    "DeadLetterRule": (
        "DeadLetterRule",
        "A rule to create along with a reroute. Filters given as keys alone take the values of the message.",
    ),
    "DeliveryPage": ("DeliveryPage", "Newest message first. `next_cursor` is null on the last page."),
    "DiffAnswer": (
        "RuleDiff",
        "The differences between two versions, one per rule. `changes` has the first 200 of `changed`.",
    ),
    "Difference": ("RoutingDifference", "A stored message that the proposed rules would route differently."),
    "DryRun": ("RoutingExplanation", "Where a hypothetical message would go, and why."),
    "DryRunBody": (
        "RoutingQuestion",
        "A hypothetical message: an `ingest.v1` envelope, or bare facts (a list if there are several values). "
        "`pinned` is the butler it replies to.",
    ),
    "Envelope": ("Envelope", "One inbound event as a connector submits it (`ingest.v1`)."),
    "ErrorBody": ("Error", "The form of every error."),
    "ErrorInfo": (
        "ErrorDetail",
        "`code` is stable, `message` may change. `field` is present if a single field is at fault, "
        "`details` if more can be said.",
    ),
    "Event": ("Event", "The platform's own id of this event; `observed_at` is when the connector saw it."),
    "ExplainedDeadLetter": ("ExplainedDeadLetter", "A dead letter and its notices."),
    "ExplainedDecision": (
        "ExplainedDecision",
        "A decision, the version of the rules that made it, and its trail through the teams.",
    ),
    "ExplainedDelivery": ("ExplainedDelivery", "A delivery with its attempts and steps."),
    "ExplainedReply": ("ExplainedReply", "A reply with the receipts of all attempts to send it."),
    "ExplainedStep": (
        "ExplainedStep",
        "What happened in one team. `considered` lists the rules that were evaluated (`left_out` more are not "
        "shown), null if that version is no longer known. `nearest` are rules that narrowly failed to match; "
        "`beaten` are rules that matched too but came later.",
    ),
    "ExplainedWaiting": (
        "ExplainedWaiting",
        "Where the message waits, or waited, for a decision: for a model, or for earlier messages of its conversation.",
    ),
    "Explanation": (
        "Explanation",
        "Everything on record about one message, in order. `waiting` is null if it was routed at once.",
    ),
    "Failure": ("BulkFailure", "A dead letter that was left unchanged, and why."),
    "Finding": (
        "Finding",
        "A problem with a rule or, if `rule_id` is null, with a team. `meant` is the probable intention, `field` "
        "the path in the rule, `by` the rule that shadows it.",
    ),
    "Found": ("IdMatch", "Something whose id begins as asked; `request_id` is the message it belongs to."),
    "FoundIds": ("IdMatches", "Messages, dead letters, replies and rules whose ids begin as asked."),
    "HandleBody": ("HandleRequest", "How the dead letter was settled."),
    "Handled": ("HandleResult", "`already` is true if the dead letter was closed before."),
    "Health": ("Health", "Whether the database can be reached."),
    "HeartbeatAnswer": ("HeartbeatResult", "Send the next heartbeat after `interval_s` seconds."),
    "HeartbeatBody": ("ConnectorHeartbeat", "`connector.heartbeat.v1`."),
    "ImportBody": (
        "ImportRequest",
        "A rule file (`switchboard.rules.v1`), which replaces all rules of the teams that it names, "
        "provided that the `tests` pass.",
    ),
    "LaneBody": ("LaneRequest", "The lane to resume."),
    "LaneList": ("LanePage", "The longest waiting first. `next_cursor` is null on the last page."),
    "LaneView": (
        "Lane",
        "A queue that is not idle. `parked` counts items that wait for an event or a time while the others go on.",
    ),
    "LeasedReplies": ("LeasedReplies", "At most one reply per conversation, to keep the order."),
    "LeasedReply": (
        "LeasedReply",
        "A reply to send now. The receipt must carry its `lease`; `recipient` is who wrote the message.",
    ),
    "Linted": ("LintResult", "Findings about the rules, the most severe first."),
    "Logged": (
        "Classification",
        "One attempt of a model to choose a butler: what it chose, what it cost, and how it was corrected.",
    ),
    "LookedAt": (
        "ConsideredRule",
        "A rule that was evaluated. `failed_filter` is the first filter that did not match, null if the rule "
        "matched; `failed` counts all that did not.",
    ),
    "MadeDelivery": ("CreatedDelivery", "A delivery that this request created."),
    "MemberView": ("Member", "A member of a team, without its options, which may contain secrets."),
    "MessageDetail": (
        "MessageDetail",
        "A message with everything that became of it. `envelope` lacks `payload.raw`, which `…/raw` returns.",
    ),
    "MessagePage": ("MessagePage", "Newest first. `next_cursor` is null on the last page."),
    "MessageView": ("Message", "A message as lists show it. `went_to` are the butlers it was delivered to."),
    "ModelView": (
        "Model",
        "A configured model with its usage today. `order` is its place among the models that are asked, null if "
        "it is never asked; `cooldown` means that a worker does not use it until `until`, because of `why`.",
    ),
    "ModelsView": ("ModelList", "The configured models, the daily limits, and the usage today."),
    "MoveBody": ("EndpointRequest", "Where a butler is called from now on; null: where its team file says."),
    "NewRuleBody": (
        "NewRule",
        "A rule to create. With a `rule_id` of your own the request is idempotent. `dry_run` writes nothing.",
    ),
    "NewToken": (
        "NewToken",
        "A token to create: a connector's has `channel` and `endpoint`, an agent's has `system_id`, others neither.",
    ),
    "Notice": (
        "Notice",
        "The notification of a System4 about a dead letter, or about several (`dead_letters`).",
    ),
    "OrderBody": ("ButlerRequest", "Which butler, and why."),
    "OutboxNext": (
        "LeaseRequest",
        "Whose replies to lease, how many, how long to wait for the first, and for how long.",
    ),
    "OutboxRow": ("Reply", "A reply on its way. `lease` is 0 unless a connector holds it."),
    "OutboxRows": ("ReplyPage", "Newest first. `next_cursor` is null on the last page."),
    "Payload": (
        "Payload",
        "`raw` is the platform's own object, kept untouched; `normalized_text` is what rules, models and butlers read.",
    ),
    "ProposedChange": (
        "ProposedChange",
        "A new rule of `team_id`, or the rule `rule_id` with the given fields changed.",
    ),
    "Read": (
        "ClassificationLogEntry",
        "A classification with the beginning of the message's `text`, omitted if the caller may not read "
        "the message (`seen`).",
    ),
    "ReceiptBody": ("Receipt", "The outcome of one attempt to send a reply."),
    "Receivers": (
        "Receivers",
        "The butlers that get a message, the teams in which it becomes a dead letter, and the teams in which a "
        "model would be asked.",
    ),
    "Replies": ("MessageReplies", "Replies to a message so far. `settled` is true when there will be no more."),
    "ReplyDetail": ("ReplyDetail", "A reply with the receipts of all attempts to send it."),
    "ReplyState": ("ReplyState", "The state of the reply after the request."),
    "ReplyView": ("MessageReply", "A reply as shown with its message."),
    "RerouteBody": (
        "RerouteRequest",
        "Where the dead letter goes. Without `to` the rules decide, starting at its own team.",
    ),
    "Rerouted": ("RerouteResult", "`already` is true if it was rerouted before; `rule` is then absent."),
    "RestoreBody": ("RestoreRequest", "The version to go back to; with `team_id`, only the rules of that team."),
    "Resumed": ("ResumedLane", "The lane continues with its next item."),
    "Revoked": ("RevokedToken", "The token is no longer valid."),
    "RuleDetail": ("RuleDetail", "A rule with its history, newest first; a removed rule as it last was."),
    "RuleEvent": (
        "RuleEvent",
        "What a version did to a rule: `before` is null if it was new, `after` if it was removed.",
    ),
    "RuleFile": ("RuleFile", "All rules of each team (`switchboard.rules.v1`); it can be imported as it is."),
    "RuleList": ("RulePage", "Oldest first. `next_cursor` is null on the last page."),
    "RulePatch": (
        "RulePatch",
        "The fields to change; `filters` and `targets` are replaced as a whole. `version` is the one that you read.",
    ),
    "RuleSetVersion": (
        "RulesVersion",
        "Who changed the rules, when, why, and how many. `teams` is true if teams or members may have changed too.",
    ),
    "RuleView": ("Rule", "A rule in force."),
    "Sender": (
        "Sender",
        "Who wrote it. `participants` maps sender ids to names if several people wrote one message.",
    ),
    "ShownDeadLetter": (
        "DeadLetter",
        "A message that could not be delivered, with its sender and the beginning of its text as long as they are "
        "kept. `handler` is the System4 that was notified. `part` is what died here if a model split the message, "
        "null for all of it.",
    ),
    "ShownDelivery": (
        "Delivery",
        "A message on its way to one butler. `attempts` counts those that were started, also by workers that died.",
    ),
    "ShownStep": ("TurnStep", "A recorded step of a turn, such as a model call, without its result."),
    "ShownWaiting": (
        "Waiting",
        "Where the message waits, or waited; `before_it` counts earlier messages of its conversation.",
    ),
    "Simulated": ("SimulatedReroute", "A dead letter that would be rerouted, and to whom."),
    "SopBody": ("SopRequest", "A standard operating procedure; its `routing_requirements` become rules."),
    "SopList": ("SopPage", "By name. `next_cursor` is null on the last page."),
    "SopRules": ("Sop", "The rules that an SOP has registered: how many, how many are active, in which teams."),
    "Source": ("Source", "Where the message entered: the channel, its provider, and which account received it."),
    "Standing": ("RemoteButler", "The state of a remote butler. `endpoint` omits what may be secret in a URL."),
    "TargetBody": ("Target", "Who gets the message: a butler (`system_id`), or a team whose rules then decide."),
    "TeamList": ("TeamPage", "By id, with the version of the rules. `next_cursor` is null on the last page."),
    "TeamView": ("Team", "A team with its members and the first of its `rule_count` rules, in evaluation order."),
    "TestAnswer": ("TestResults", "The results of the cases, in their order."),
    "TestBody": ("TestRequest", "Cases to run against the rules in force, or those of a rule file (`document`)."),
    "TestResult": ("TestResult", "A case: who was expected to get the message, who gets it, and why."),
    "TestsBody": ("TestFile", "A file of route tests."),
    "TokenIssued": ("IssuedToken", "The only response that contains the secret (`token`)."),
    "TokenList": ("TokenPage", "Oldest first. `next_cursor` is null on the last page."),
    "TokenView": ("Token", "A token without its secret."),
    "Totals": ("UsageTotals", "Messages, attempts, tokens and cost of a period."),
    "Usage": (
        "UsageRow",
        "The usage of one day, model, butler, team, message or asker. `key` is null for undelivered messages.",
    ),
    "UsageView": ("UsageReport", "The usage from `since` until `until`: a page by `key`, and the total of all pages."),
    "VersionPage": ("RulesVersionPage", "Newest first. `next_cursor` is null on the last page."),
    "VersionView": ("RulesVersionDetail", "A version with its changes: the first 200 of `changed`."),
    "WrittenRule": ("CreatedRule", "The rule that was created along with a reroute, and its effect."),
    "WrittenRuleView": (
        "RuleEdit",
        "The rule as it is now, or would be after a dry run. `warnings` is null if the team has too many rules to "
        "check, `blast` if it could not be computed; `fresh` is false if nothing had to be changed.",
    ),
    "WrittenView": (
        "RulesEdit",
        "What an edit of several rules did, or would do. `changes` has the first 200 of `changed`.",
    ),
}
