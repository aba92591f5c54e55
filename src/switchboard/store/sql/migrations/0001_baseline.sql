-- The tables as they were at the beginning. Numbered files hold DDL only; functions are in ../functions, applied after it.
--
-- Laws:
--   * message_inbox is insert-only: what arrived is kept exactly, but for the words of strangers who were not let in.
--   * A lane is one row; its items are the rows with (lane, seq) in the ledger of its kind: delivery for `turn:`,
--     outbox for `send:`, notice for `notice:`, routing for `route:`. seq is given under the row lock of the lane and
--     has no gaps. All items up to done_seq have ended or are parked; next_seq is the one that runs, or will run next: a
--     parked one that was decided (resumed_seq), else done_seq + 1.
--   * (owner, epoch, state = running) is the fence: every write of a turn checks it in the same statement or transaction.
--   * Lock lanes in key order first, read in the next statement: a snapshot older than the lock misses what was committed
--     while waiting for it.
--   * No sequence and no trigger on a hot path; every unique key of a growing table contains its lane, request or
--     endpoint. Keys hold no identities: a conversation is known by a keyed hash, and its name stands in one table.
--   * What is found by its request_id (UUIDv7) alone is partitioned by month of it, see make_partitions; the ledger is not,
--     because it is found by (lane, seq), but has request_id in its keys, so that it could be.

create table migration (
    component text not null,
    number integer not null,
    name text not null,
    applied_at timestamptz not null default now(),
    primary key (component, number)
);

-- The functions that are in force, and the release that installed them.
create table installed_functions (
    component text primary key,
    digest text not null,
    release text not null
);

-- The keys of HMAC-SHA-256, as conversation_key and store/keys.py need them: one secret of 32 bytes, padded and combined with 0x36 and 0x5c.
create table installation (
    one boolean primary key default true check (one),
    inner_key bytea not null,
    outer_key bytea not null,
    created_at timestamptz not null default now()
);
insert into installation (inner_key, outer_key)
    select string_agg(set_byte('\x00', 0, k.byte # 54), '' order by k.n), string_agg(set_byte('\x00', 0, k.byte # 92), '' order by k.n)
    from (select uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) as secret) s
    cross join lateral (
        select n, case when n < 32 then get_byte(s.secret, n) else 0 end as byte from generate_series(0, 63) n
    ) k;

-- Who there is ------------------------------------------------------------------------------------------------------

create table team (
    team_id text primary key,
    parent_id text references team,
    purpose text not null default '',
    classify boolean not null default false
);
create unique index team_one_root on team ((parent_id is null)) where parent_id is null;

-- promised and what follows are of remote butlers: whether it sends heartbeats, when it last did or answered, what it
-- announced and when, an endpoint set at run time (own: by itself), and who put it in quarantine.
create table member (
    system_id text primary key,
    team_id text not null references team,
    number smallint not null check (number between 1 and 5),
    engine text not null,
    options jsonb not null default '{}',
    description text not null default '',
    capabilities text[] not null default '{}',
    active boolean not null default true,
    since timestamptz not null default now(),
    promised boolean not null default false,
    last_seen_at timestamptz,
    announced jsonb not null default '{}',
    endpoint text,
    own_endpoint boolean not null default false,
    quarantined_by text,
    quarantine_reason text,
    announced_at timestamptz
);
create index member_remote on member (system_id) where engine = 'mcp';

-- Since when somebody has been there, without a gap, to hear that butlers live: silence before that says nothing.
create table listening (
    one boolean primary key default true check (one),
    since timestamptz not null default clock_timestamp(),
    at timestamptz not null default clock_timestamp()
);

create table rule (
    rule_id uuid primary key,
    team_id text not null references team,
    name text not null,
    channel text not null,
    filters jsonb not null,
    targets jsonb not null,
    priority integer not null,
    active boolean not null,
    created_by text not null,
    updated_by text not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    version bigint not null,
    source text not null default '',
    copy boolean not null default false,
    reply_to_automatic boolean not null default false
);
create index rule_team on rule (team_id, rule_id);
create index rule_source on rule (source) where source <> '';

-- One row per version of teams, members and rules together; the newest is in force.
-- teams: teams or members may have changed, so followers must look at them too.
create table rule_set (
    version bigint primary key,
    author text not null,
    reason text not null,
    created_at timestamptz not null default now(),
    teams boolean not null default true
);

-- What a version did to a rule: before is null for a new rule, after for one that was removed. Insert-only; with it
-- the rules of any version can be told.
create table rule_change (
    team_id text not null,
    rule_id uuid not null,
    version bigint not null references rule_set,
    before jsonb,
    after jsonb,
    primary key (team_id, rule_id, version)
);
create index rule_change_version on rule_change (version);
create index rule_change_rule on rule_change (rule_id, version);

create table token (
    token_id uuid primary key,
    name text not null,
    hash bytea not null unique,
    role text not null check (role in ('operator', 'connector', 'agent', 'metrics', 'approver')),
    channel text,
    endpoint text,
    system_id text,
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    revoked_at timestamptz
);
create unique index token_live_name on token (name) where revoked_at is null;

create table audit (
    audit_id uuid primary key,
    at timestamptz not null default now(),
    actor text not null,
    action text not null,
    detail jsonb not null
) partition by range (audit_id);

-- The processes of connectors, as they last reported themselves; since: in this state, behind_since: the oldest event that the
-- platform has for us and we have not.
create table connector (
    channel text not null,
    endpoint text not null,
    instance_id text not null,
    version text,
    state text not null,
    error_message text,
    counters jsonb not null,
    since timestamptz not null default clock_timestamp(),
    behind_since timestamptz,
    first_seen_at timestamptz not null default clock_timestamp(),
    last_seen_at timestamptz not null default clock_timestamp(),
    primary key (channel, endpoint, instance_id)
);

-- Which instance of a connector serves an account: a new lease is given each time that it is held, and fences its writes.
-- moved: by the thread that a conversation has on the platform now, the one under which it is known here. since: the first lease.
create table connector_account (
    channel text not null,
    endpoint text not null,
    instance_id text not null,
    lease bigint not null,
    lease_until timestamptz not null,
    cursor text,
    moved jsonb not null default '{}',
    since timestamptz not null default clock_timestamp(),
    primary key (channel, endpoint)
);

-- Events that could not be made into messages, with their bytes (zlib). key: the keyed hash of account and event. replay: the
-- connector is to submit it again.
create table quarantine (
    quarantine_id uuid primary key,
    key uuid not null unique,
    channel text not null,
    endpoint text not null,
    event_id text not null,
    reason text not null,
    raw bytea not null,
    size_bytes integer not null,
    replay boolean not null default false,
    at timestamptz not null default clock_timestamp()
);
alter table quarantine alter column raw set storage external;
create index quarantine_replay on quarantine (channel, endpoint) where replay;
create index quarantine_account on quarantine (channel, endpoint, quarantine_id);

-- Events that a platform has posted, as they came (zlib), until the connector of the account has made messages of them.
create table posted_event (
    posted_id bigint generated always as identity primary key,
    channel text not null,
    endpoint text not null,
    raw bytea not null,
    size_bytes integer not null,
    at timestamptz not null default clock_timestamp()
);
alter table posted_event alter column raw set storage external;
create index posted_event_account on posted_event (channel, endpoint, posted_id) include (size_bytes);
create index posted_event_age on posted_event (at);

-- Who has written to an endpoint that not everybody may write to, or was let in there before. contact_id and account are keyed
-- hashes, of the one and of the endpoint. scope: a person, a group, or whom a mail names without proof. held: how many messages
-- wait; refused: how many more were not stored. told_at: when they were last told that somebody must let them in.
create table contact (
    contact_id uuid primary key,
    account uuid not null,
    channel text not null,
    endpoint text not null,
    scope text not null check (scope in ('person', 'group', 'unverified', 'late')),
    identity text not null,
    display_name text,
    state text not null check (state in ('stranger', 'approved', 'denied')),
    held integer not null default 0 check (held >= 0),
    refused bigint not null default 0,
    first_seen_at timestamptz not null default clock_timestamp(),
    last_seen_at timestamptz not null default clock_timestamp(),
    told_at timestamptz,
    decided_at timestamptz,
    decided_by text
);
create index contact_held on contact (account) where held > 0;
create index contact_page on contact (first_seen_at, contact_id);
create index contact_told on contact (account, told_at) where told_at is not null;

-- Codes by which one stranger lets themselves in, known by a keyed hash.
create table pairing_code (
    code_id uuid primary key,
    account uuid not null,
    key uuid not null,
    tries smallint not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null,
    used_at timestamptz,
    contact_id uuid
);
create index pairing_code_account on pairing_code (account);

-- What arrived ------------------------------------------------------------------------------------------------------

-- conversation is the keyed hash of the name, which tells of channel, endpoint and thread, chat or sender.
create table conversation (
    conversation uuid primary key,
    name text not null
);

-- In the thread that has this key, the messages of this person (a keyed hash) belong to that conversation: for channels where
-- anybody can name any thread.
create table thread_place (
    thread uuid not null,
    person uuid not null,
    conversation uuid not null,
    primary key (thread, person)
);

create table message_inbox (
    request_id uuid primary key,
    conversation uuid not null,
    channel text not null,
    endpoint text not null,
    sender text not null,
    thread text,
    envelope json not null,
    media_type text not null,
    received_at timestamptz not null
) partition by range (request_id);
create index message_inbox_conversation on message_inbox (conversation, request_id);
create index message_inbox_endpoint on message_inbox (channel, endpoint, request_id);

-- The original bytes, compressed (zlib).
create table message_raw (
    request_id uuid primary key,
    raw bytea not null
) partition by range (request_id);
alter table message_raw alter column raw set storage external;

-- Files of messages, each stored once: blob is the SHA-256 of its bytes. used_at: when it was last uploaded or named.
create table blob (
    blob bytea primary key,
    size_bytes bigint not null,
    media_type text not null,
    used_at timestamptz not null default clock_timestamp()
);
create index blob_used on blob (used_at);

create table blob_piece (
    blob bytea not null,
    n integer not null,
    bytes bytea not null,
    primary key (blob, n)
);
alter table blob_piece alter column bytes set storage external;

-- Whose messages may name a blob: those of the endpoint that uploaded it. Both are empty for operators. media_type: what this
-- uploader is told; that of the blob is what its bytes say alone. named: by a message of this endpoint.
create table blob_upload (
    blob bytea not null,
    channel text not null,
    endpoint text not null,
    size_bytes bigint not null,
    media_type text not null,
    named boolean not null default false,
    uploaded_at timestamptz not null default clock_timestamp(),
    primary key (blob, channel, endpoint)
);
create index blob_upload_endpoint on blob_upload (channel, endpoint, uploaded_at);
create index blob_upload_unnamed on blob_upload (uploaded_at) where not named and channel <> '';

-- Anyone who may read the message may read its blobs.
create table message_blob (
    blob bytea not null,
    request_id uuid not null,
    primary key (blob, request_id)
);
create index message_blob_request on message_blob (request_id);

-- What a butler has made in its turn for this message, and may send with its answer.
create table blob_made (
    blob bytea not null,
    request_id uuid not null,
    system_id text not null,
    size_bytes bigint not null,
    media_type text not null,
    primary key (blob, request_id, system_id)
);
create index blob_made_request on blob_made (request_id);

-- key: the keyed hash of (channel, endpoint, the event's own key); body: that of what makes two submissions the same.
create table dedupe (
    key uuid primary key,
    body uuid not null,
    request_id uuid not null
);
create index dedupe_request on dedupe using brin (request_id) with (autosummarize = on);

-- branches = deliveries + dead letters that this decision made: what the books are balanced against.
-- parts: the part of the text that each team got, where a model split it; '' is for all teams that are not named, and without
-- it they have the whole. null: all have the whole.
create table decision (
    request_id uuid not null,
    n smallint not null,
    version bigint not null,
    branches smallint not null,
    trail json not null,
    decided_at timestamptz not null,
    facts json,
    parts jsonb,
    primary key (request_id, n)
) partition by range (request_id);

-- Messages of strangers, and those that came too late, which are not routed: held until somebody decides, forgotten, or the code
-- that let its sender in.
-- A message that is released leaves this table, and waits in `routing`.
create table held (
    request_id uuid primary key,
    contact_id uuid not null,
    conversation uuid not null,
    state text not null check (state in ('held', 'forgotten', 'code')),
    tier smallint not null,
    facts json not null,
    pinned text,
    at timestamptz not null
);
create index held_contact on held (contact_id, request_id) where state = 'held';

-- The engine --------------------------------------------------------------------------------------------------------

-- key: lane_key of what the lane is for. system_id: the butler of a turn, the System4 of a notice; conversation: null in
-- the lane of its digests. flow: whose share of the workers it takes, see flow_key; that of the message which made it ready.
-- delayed: it is ready, but not before ready_at, and cannot be claimed until a claim has found that time to have come.
-- keeper: the process in which something of the conversation lives, such as a shell; until kept_until it is offered to that
-- one first, see claim_in_turn.
-- blocked_at: of replies, when the platform last said that nothing can be sent there; null since something was.
create table lane (
    key uuid primary key,
    kind text not null,
    system_id text,
    conversation uuid,
    pool text not null,
    tier smallint not null,
    last_seq bigint not null default 0,
    done_seq bigint not null default 0,
    state text not null default 'idle' check (state in ('idle', 'ready', 'running', 'paused')),
    owner bigint,
    epoch bigint not null default 0,
    attempts integer not null default 0,
    ready_at timestamptz not null default now(),
    flow bigint not null default 0,
    delayed boolean not null default false,
    keeper bigint,
    kept_until timestamptz,
    lease_until timestamptz,
    parked integer not null default 0,
    resumed_seq bigint,
    head_attempts integer not null default 0,
    head_ready_at timestamptz,
    blocked_at timestamptz,
    next_seq bigint not null generated always as (coalesce(resumed_seq, done_seq + 1)) stored
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);
create index lane_ready on lane (pool, tier, flow, ready_at) where state = 'ready' and not delayed;
create index lane_delayed on lane (pool, ready_at) where state = 'ready' and delayed;
create index lane_owner on lane (owner) where state = 'running' and owner is not null;
create index lane_lease on lane (lease_until) where state = 'running' and lease_until is not null;
create index lane_late on lane (pool, flow) where state = 'running' and tier = 4;
create index lane_busy on lane (pool) where state <> 'idle';
create index lane_parked on lane (key) where parked > 0;

-- Items that wait while the others of their lane go on: until due_at, or for an event. attempts: those before it was parked.
-- decided_at: since then it comes before everything else of its lane.
create table parked (
    lane uuid not null,
    seq bigint not null,
    attempts integer not null default 0,
    due_at timestamptz,
    since timestamptz not null default clock_timestamp(),
    decided_at timestamptz,
    primary key (lane, seq)
);
create index parked_decided on parked (lane, decided_at, seq) where decided_at is not null;
create index parked_due on parked (due_at) where decided_at is null and due_at is not null;

-- Items that are to end: their workers are told, and look here in case they did not hear. command: the message that wants it;
-- null: it came over the API.
create table stopped (
    lane uuid not null,
    seq bigint not null,
    command uuid,
    at timestamptz not null default clock_timestamp(),
    primary key (lane, seq)
);

-- Events that steps wait for. result: of the first decision; null with decided_at: the item ended without it.
create table awaited (
    key uuid primary key,
    lane uuid not null,
    seq bigint not null,
    request_id uuid not null,
    path text not null,
    deadline_at timestamptz,
    decided_at timestamptz,
    result json
);
create index awaited_item on awaited (lane, seq);
create index awaited_message on awaited (request_id);
create index awaited_deadline on awaited (deadline_at) where decided_at is null and deadline_at is not null;

-- Events of which people decide: whether a tool may be called, or the answer to a question. What was decided is the result of the
-- event. digest: of the tool, its schema, the arguments and the turn. readers: who sees it in chat, as core/readers.py names them.
-- told_in: the message with which the conversation heard of it.
create table approval (
    approval_id uuid primary key,
    asked_at timestamptz not null default clock_timestamp(),
    kind text not null check (kind in ('call', 'question')),
    system_id text not null,
    tool text not null,
    arguments json not null,
    why text not null,
    digest text not null,
    readers text not null,
    told_in uuid
);
create index approval_newest on approval (asked_at, approval_id);
create index approval_told on approval (told_in) where told_in is not null;

-- text: the butler's part of the message where a model split it; null is the whole. n: the decision that made it.
create table delivery (
    lane uuid not null,
    seq bigint not null,
    request_id uuid not null,
    system_id text not null,
    team_id text not null,
    segment smallint not null default 0,
    state text not null default 'pending' check (state in ('pending', 'answered', 'declined', 'dead', 'cancelled')),
    error_class text,
    created_at timestamptz not null,
    settled_at timestamptz,
    text text,
    n smallint not null default 1,
    primary key (lane, seq, request_id)
) with (fillfactor = 85);
create unique index delivery_once on delivery (request_id, lane, n, segment);
create index delivery_unanswered on delivery (request_id) where state <> 'answered';

-- A message that waits to be classified, or behind one of its conversation that does; its decision is not yet made.
create table routing (
    lane uuid not null,
    seq bigint not null,
    request_id uuid not null,
    pinned text,
    facts json not null,
    state text not null default 'pending' check (state in ('pending', 'routed')),
    created_at timestamptz not null,
    settled_at timestamptz,
    primary key (lane, seq, request_id)
) with (fillfactor = 85);
create index routing_request on routing (request_id);
create index routing_pending on routing (created_at) where state = 'pending';

-- One row per finished run of a butler: answered, failed, lost with its worker, …
-- stop_reason: null for an engine that came to its own end; usage: a list of ModelUsage, null where no model was asked.
create table attempt (
    request_id uuid not null,
    lane uuid not null,
    seq bigint not null,
    epoch bigint not null,
    outcome text not null,
    error_class text,
    error text,
    engine text,
    worker bigint,
    started_at timestamptz,
    finished_at timestamptz not null,
    stop_reason text,
    usage json,
    primary key (request_id, lane, seq, epoch)
);

-- The journal. path: request:2, tool:2:call_7, s3/2. cost in micro-dollars. An event is not done by us, but waited for.
create table step (
    request_id uuid not null,
    lane uuid not null,
    seq bigint not null,
    path text not null,
    effect text not null check (effect in ('idempotent', 'queryable', 'effectful', 'event')),
    state text not null check (state in ('started', 'done', 'failed', 'skipped', 'cancelled')),
    idempotency_key uuid not null,
    epoch bigint not null,
    result json,
    tokens_in bigint not null default 0,
    tokens_out bigint not null default 0,
    cost bigint,
    started_at timestamptz not null default clock_timestamp(),
    ended_at timestamptz,
    primary key (request_id, lane, seq, path)
) partition by range (request_id);
-- Of turns that plan: what was decided.
create index step_plan on step (request_id) where path = 'plan:route';

-- untold: what people are to be told of a reply that was not sent, or may not have been; null once they are.
create table outbox (
    lane uuid not null,
    seq bigint not null,
    outbox_id uuid not null,
    request_id uuid not null,
    system_id text not null,
    channel text not null,
    endpoint text not null,
    thread text,
    recipient text not null,
    reply_to text not null,
    text text not null,
    state text not null check (state in ('pending', 'sending', 'sent', 'uncertain', 'failed', 'dead')),
    idempotent boolean not null default false,
    platform_message_id text,
    error text,
    created_at timestamptz not null,
    settled_at timestamptz,
    files json,
    untold text check (untold in ('uncertain', 'braked', 'blocked')),
    primary key (lane, seq, request_id)
) with (fillfactor = 85);
create index outbox_untold on outbox (outbox_id) where untold is not null;
create index outbox_request on outbox (request_id);
create index outbox_id on outbox (outbox_id);
create index outbox_platform on outbox (lane, platform_message_id) where platform_message_id is not null;
create index outbox_open on outbox (outbox_id) where state <> 'sent';
-- A hash, because a recipient may be longer than an entry of an index.
create index outbox_told on outbox (hashtextextended(recipient, 0), created_at) where system_id = 'switchboard';

-- Files of replies stay as long as the replies; outbox.files says how they are called there.
create table outbox_blob (
    blob bytea not null,
    outbox_id uuid not null,
    primary key (blob, outbox_id)
);

-- Replies that a connector sends in parts: intent is recorded before one is sent, and its outcome afterwards. part: from 0.
create table outbox_part (
    outbox_id uuid not null,
    part integer not null,
    parts integer not null,
    lane uuid not null,
    state text not null check (state in ('intent', 'sent', 'refused', 'uncertain')),
    key text,
    platform_message_id text,
    error text,
    at timestamptz not null default clock_timestamp(),
    primary key (outbox_id, part)
);
create index outbox_part_platform on outbox_part (lane, platform_message_id) where platform_message_id is not null;

-- One row per attempt to send, and what the platform said of it.
create table receipt (
    request_id uuid not null,
    outbox_id uuid not null,
    epoch bigint not null,
    outcome text not null,
    platform_message_id text,
    error text,
    at timestamptz not null,
    primary key (request_id, outbox_id, epoch)
);

-- handler is who is notified, notice_lane and notice_seq by which notice: null while it waits for a digest. rerouted_n is the
-- decision that rerouted it. sender_spared: the sender is not to be told (mailing lists, automatic mail). emptied_at: it was
-- handled long ago; payload, raw and text have been erased. text: the part of the message that could not be delivered, where
-- a model split it; null is the whole. n: the decision that made it. logged_at: it is in the log.
-- told_at: somebody outside was told; tell_after: until then it is not tried (again).
create table dead_letter (
    dead_letter_id uuid primary key,
    conversation uuid not null,
    request_id uuid not null,
    team_id text not null,
    channel text not null,
    payload jsonb not null,
    raw bytea not null,
    category text not null,
    reason text not null,
    lane uuid,
    seq bigint,
    system_id text,
    handler text,
    received_at timestamptz not null,
    created_at timestamptz not null,
    status text not null default 'pending' check (status in ('pending', 'handled')),
    handled_by_system_id text,
    resolution text,
    handled_at timestamptz,
    rerouted_n smallint,
    notice_lane uuid,
    notice_seq bigint,
    sender_told_at timestamptz,
    emptied_at timestamptz,
    sender_spared boolean not null default false,
    text text,
    n smallint not null default 1,
    logged_at timestamptz,
    told_at timestamptz,
    tell_attempts integer not null default 0,
    tell_after timestamptz not null default clock_timestamp()
);
create index dead_letter_request on dead_letter (request_id);
create index dead_letter_team on dead_letter (team_id, dead_letter_id);
create index dead_letter_notice on dead_letter (notice_lane, notice_seq) where notice_lane is not null;
create index dead_letter_waiting on dead_letter (handler, dead_letter_id)
    where handler is not null and notice_lane is null and status = 'pending';
create index dead_letter_untold on dead_letter (dead_letter_id)
    where status = 'pending' and sender_told_at is null and not sender_spared;
create index dead_letter_unlogged on dead_letter (dead_letter_id) where logged_at is null;
create index dead_letter_to_tell on dead_letter (tell_after) where status = 'pending' and told_at is null;
create index dead_letter_pending on dead_letter (dead_letter_id) where status = 'pending';
create index dead_letter_reply on dead_letter (lane)
    where status = 'pending' and category in ('reply_braked', 'reply_unreachable');
create index dead_letter_category on dead_letter (category, dead_letter_id);
create index dead_letter_kept on dead_letter (handled_at) where status = 'handled' and emptied_at is null;

-- A dead letter reported to the System4 that handles it. A digest, in a lane without a conversation, is about `dead_letters`
-- of them, and names the first.
create table notice (
    lane uuid not null,
    seq bigint not null,
    dead_letter_id uuid not null,
    request_id uuid not null,
    team_id text not null,
    system_id text not null,
    state text not null default 'pending' check (state in ('pending', 'delivered', 'failed')),
    error_class text,
    created_at timestamptz not null,
    settled_at timestamptz,
    dead_letters integer not null default 1,
    primary key (lane, seq, request_id)
);
create index notice_request on notice (request_id);
create index notice_pending on notice (system_id) where state = 'pending';

-- Servers, workers, and programs that do turns of their own calls. A server owns no lanes; kinds: of the lanes that it knows. One
-- that does not beat within its ttl is removed by any worker, and a worker that took the advisory lock also when it lets go of it.
create table process (
    process_id bigint generated always as identity primary key,
    role text not null default 'worker' check (role in ('worker', 'server', 'program')),
    kinds text[] not null default '{}',
    host text not null,
    pid integer not null,
    version text not null,
    ttl interval not null,
    has_lock boolean not null check (role = 'worker' or not has_lock),
    started_at timestamptz not null default clock_timestamp(),
    beat timestamptz not null default clock_timestamp()
);

-- What became of the messages (or targets) that were accepted on a day, as counted at checked_at; audited_at: when all
-- its checks were made last. The difference of the counts must be 0.
create table book (
    day date not null,
    kind text not null check (kind in ('messages', 'targets')),
    accepted bigint not null,
    in_flight bigint not null,
    answered bigint not null,
    declined bigint not null,
    dead bigint not null,
    cancelled bigint not null,
    held bigint not null default 0,
    history bigint not null default 0,
    checked_at timestamptz not null default clock_timestamp(),
    audited_at timestamptz,
    primary key (day, kind)
);

-- Of the messages accepted on a day that were decided: those with a dead letter, else those for which a model chose, else
-- those that rules brought to their butlers. As counted when the books of the day were balanced last.
create table outcome (
    day date primary key,
    routed bigint not null,
    classified bigint not null,
    dead bigint not null
);

-- How many deliveries of the messages accepted on a day were answered, as counted when its books were balanced last.
create table tally (
    day date not null,
    system_id text not null,
    answered bigint not null,
    primary key (day, system_id)
);

-- When a worker balanced the books last, and what of all that is open contradicted itself then.
create table balance (
    one boolean primary key default true check (one),
    at timestamptz not null default clock_timestamp(),
    problems text[] not null
);

create table schedule (
    name text primary key,
    every interval not null,
    next_at timestamptz not null default now(),
    last_at timestamptz,
    last_error text
);

-- What functions are given many of, as one array of rows ------------------------------------------------------------------

-- A type is never changed: functions of this release and the next take it. One with other columns gets another name.
create type settlement as (
    lane uuid, epoch bigint, seq bigint, outcome text, error_class text, error text, engine text, started_at timestamptz,
    stop_reason text, usage text, hand_on boolean, pause boolean, outbox_id uuid, text text, pool text,
    dead_letter_id uuid, category text, reason text, handler text, files text
);
create type step_write as (
    lane uuid, epoch bigint, seq bigint, request_id uuid, path text, effect text, state text, idempotency_key uuid,
    result text, tokens_in bigint, tokens_out bigint, cost bigint
);
create type new_dead_letter as (
    id uuid, request_id uuid, conversation uuid, team_id text, category text, reason text, handler text,
    lane uuid, seq bigint, system_id text, text text, n smallint
);

-- What the memo engine keeps ------------------------------------------------------------------------------------------

create table memo (
    conversation uuid not null,
    memo_id uuid not null,
    system_id text not null,
    request_id uuid not null,
    person text not null,
    private boolean not null,
    text text not null,
    words tsvector generated always as (to_tsvector('simple', left(text, 100000))) stored,
    created_at timestamptz not null default now(),
    primary key (conversation, memo_id)
);
create index memo_words on memo using gin (words);
create index memo_person on memo (system_id, person);

-- What was said ---------------------------------------------------------------------------------------------------------

-- One row per message of either side, in the lane of a butler's turns; position: 1, 2, … without gaps. person: who wrote it,
-- or whom it answers; private: nobody else was there. compacted_at: since then a summary stands for it. learn: whether facts
-- may be taken from it.
create table entry (
    lane uuid not null,
    position bigint not null,
    request_id uuid not null,
    role text not null check (role in ('user', 'assistant')),
    person text not null,
    private boolean not null,
    text text not null,
    calls json,
    created_at timestamptz not null,
    compacted_at timestamptz,
    learn boolean not null default true,
    primary key (lane, position, request_id)
);
create index entry_request on entry (request_id);
create index entry_compacted on entry (compacted_at) where compacted_at is not null;

-- What stands for the entries up to a position, the summary before it included. person and private as of an entry: where what
-- two people said in private is in one range, nobody is given a summary of it, and its text is empty.
create table summary (
    lane uuid not null,
    position bigint not null,
    summary_id uuid not null,
    first_position bigint not null,
    person text not null,
    private boolean not null,
    text text not null,
    created_at timestamptz not null default clock_timestamp(),
    restored_at timestamptz,
    primary key (lane, position)
);
create index summary_id on summary (summary_id);

-- Up to which position the history of a lane was erased for its age; what is said next goes on behind it.
create table erased_history (
    lane uuid primary key,
    position bigint not null
);

-- Lanes whose oldest entries are to be compacted; tries: since the last turn; not before ready_at.
create table compaction (
    lane uuid primary key,
    tries smallint not null default 0,
    ready_at timestamptz not null default clock_timestamp()
);
create index compaction_ready on compaction (ready_at);

-- What a butler has learned from people's own words. author: who said it; space: who may hear it: the author in private,
-- the conversation in which it was said, or all. mark: a keyed hash of butler, author and text.
create table fact (
    fact_id uuid primary key,
    system_id text not null,
    conversation uuid not null,
    author text not null check (author <> ''),
    subject text not null,
    space text not null check (space in ('private', 'group', 'shared')),
    text text not null check (length(text) between 1 and 300),
    mark uuid not null,
    created_at timestamptz not null default clock_timestamp()
);
create unique index fact_mark on fact (mark, space, conversation);
create index fact_author on fact (system_id, author) where space = 'private';
create index fact_conversation on fact (conversation, system_id) where space = 'group';
create index fact_shared on fact (system_id, fact_id) where space = 'shared';
create index fact_page on fact (system_id, fact_id);

-- Facts are read and written by functions that open the table for themselves, see facts.sql: a statement of our own that
-- forgets who reads finds nothing. A superuser passes all the same.
alter table fact enable row level security;
alter table fact force row level security;
create policy fact_by_function on fact
    using (current_setting('switchboard.facts', true) = 'open') with check (current_setting('switchboard.facts', true) = 'open');

-- The entries that a fact cites.
create table fact_source (
    fact_id uuid not null,
    lane uuid not null,
    position bigint not null,
    primary key (fact_id, lane, position)
);

-- What was forgotten, by marks and ids that say nothing: it is not learned again.
create table forgotten (
    fact_id uuid primary key,
    mark uuid not null,
    at timestamptz not null default clock_timestamp()
);
create index forgotten_mark on forgotten (mark);

-- Routing by a model: sessions, what they called, what came of it ---------------------------------------------------------

-- A session of a model for one message: it may call one tool, for some minutes, and name its candidates alone. What it
-- calls after its end counts for nothing. Rows are removed some time after they expired.
create table session_token (
    session_id uuid primary key,
    hash bytea not null unique,
    conversation uuid not null,
    request_id uuid not null,
    team_id text not null,
    candidates jsonb not null,
    calls integer not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null,
    ended_at timestamptz
);
create index session_token_expires on session_token (expires_at);
create index session_token_open on session_token (request_id) where ended_at is null;

-- What our server saw a session call, refused calls included: it wins over what a transcript claims. Insert-only.
create table route_call (
    session_id uuid not null,
    n integer not null,
    request_id uuid not null,
    butler text not null,
    segment text,
    reason text not null,
    ok boolean not null,
    why text not null,
    at timestamptz not null default clock_timestamp(),
    primary key (request_id, session_id, n)
) partition by range (request_id);
create index route_call_at on route_call (at);

-- One row per attempt to classify, whatever came of it. cost in micro-dollars; corrected_to: where it should have gone.
create table classification (
    request_id uuid not null,
    conversation uuid not null,
    team_id text not null,
    n integer not null,
    session_id uuid,
    candidates text[] not null,
    result jsonb not null,
    model text,
    tokens_in bigint not null,
    tokens_out bigint not null,
    cost bigint,
    ms integer not null,
    error text,
    corrected_to text,
    corrected_by text,
    at timestamptz not null default clock_timestamp(),
    corrected_at timestamptz,
    correction text,
    primary key (request_id, team_id, n)
) partition by range (request_id);
create index classification_at on classification (at);
create index classification_corrected on classification (request_id) where corrected_to is not null;

-- What models have cost on a day, and what running sessions have set aside; what nobody settled is free again at `until`.
-- refused: how often a model was not asked because of a cap of the day; senders_refused: because of a limit per sender.
-- newcomer_tokens: spent for senders who had asked no model before that day.
create table model_day (
    day date primary key,
    tokens bigint not null default 0,
    micros bigint not null default 0,
    refused bigint not null default 0,
    newcomer_tokens bigint not null default 0,
    senders_refused bigint not null default 0
);

-- What models have used for a sender on a day: `tokens` for classification, `turn_tokens` for turns.
-- even_until: until when the sessions of classification would have taken, had they come evenly.
create table model_flow (
    flow bigint not null,
    day date not null,
    newcomer boolean not null,
    tokens bigint not null default 0,
    turn_tokens bigint not null default 0,
    even_until timestamptz not null default clock_timestamp(),
    primary key (flow, day)
);
create index model_flow_day on model_flow (day);

-- flow: the sender from whose share of classification it is reserved, null: from the cap of the day.
-- turn_flow: the sender from whose share of turns it is reserved besides.
create table model_reservation (
    reservation_id uuid primary key,
    day date not null,
    flow bigint,
    turn_flow bigint,
    newcomer boolean not null default false,
    tokens bigint not null,
    micros bigint not null default 0,
    until timestamptz not null
);

-- What was used of each model on a day, and for what: `asker` is classification, turn, plan, compaction and so on; `butler` whose
-- work it was, '' of nobody, as of classification.
create table model_usage (
    day date not null,
    asker text not null,
    butler text not null,
    model text not null,
    attempts bigint not null,
    failed bigint not null,
    tokens_in bigint not null,
    tokens_out bigint not null,
    cache_read bigint not null,
    cache_write bigint not null,
    cost bigint not null,
    primary key (day, asker, butler, model)
);

-- Models that a process does not use for some time: they failed, or their provider asked for a pause (for_all).
create table model_cooldown (
    model text not null,
    process uuid not null,
    until timestamptz not null,
    why text not null,
    at timestamptz not null default clock_timestamp(),
    for_all boolean not null default false,
    primary key (model, process)
);

-- Keys that a provider has refused, by their hash: their model is paused for all processes that have this key, until a
-- test succeeds, a process starts or a day has passed.
create table model_refused_key (
    model text not null,
    key_hash text not null,
    why text not null,
    at timestamptz not null default clock_timestamp(),
    primary key (model, key_hash)
);

-- Sessions with models that are running, and those that wait for a slot: `concurrency` of a model, or of a local server, holds
-- for all processes. Unlogged: after a crash of the database none is running.
-- slot: whose slots they are; rank: who waits with a smaller one is served first, else who waits longer.
create unlogged table model_lease (
    lease_id uuid primary key,
    slot text not null,
    rank smallint not null,
    since timestamptz not null default clock_timestamp(),
    holds boolean not null,
    until timestamptz not null
);
create index model_lease_slot on model_lease (slot);

-- What turns write at the moment, for those who read along; removed when their attempt ends. kept: how many characters of what
-- was told before stay; tool: the name of one that is called. Unlogged: after a crash the reply is written again, or is there.
create unlogged table delta (
    request_id uuid not null,
    system_id text not null,
    epoch bigint not null,
    n bigint not null,
    step bigint not null,
    kept bigint not null,
    text text not null,
    tool text not null,
    at timestamptz not null default clock_timestamp(),
    primary key (request_id, system_id, epoch, n)
);

-- Keys of messages that a program has given to its pipeline, as in `dedupe`: while they are classified, and afterwards
-- (done) of those that the program took on itself. Only of these `dedupe` has keys without a message in the inbox.
create table pipeline_key (
    key uuid primary key,
    request_id uuid not null,
    done boolean not null default false
);
create index pipeline_key_request on pipeline_key (request_id);

-- MCP servers whose tools butlers may use, as any worker found them last. why: it could not be started; null: it could.
create table mcp_server (
    server text primary key,
    at timestamptz not null default clock_timestamp(),
    why text
);

-- Their tools: what was accepted (null: it is new), and what the server listed last (null: not this one). Marks are
-- hashes of them. What differed once is disabled until an operator accepts it.
create table mcp_tool (
    server text not null references mcp_server (server),
    tool text not null,
    accepted json,
    accepted_mark text,
    accepted_at timestamptz,
    accepted_by text,
    seen json,
    seen_mark text,
    seen_at timestamptz not null default clock_timestamp(),
    disabled_at timestamptz,
    primary key (server, tool)
);
