-- name: ids
-- Each kind by its own index. The ids of rules that were removed are in their history.
(select 'message' as kind, request_id as id, request_id from message_inbox where request_id between $1 and $2 order by request_id limit $3)
union all
(select 'dead_letter', dead_letter_id, request_id from dead_letter where dead_letter_id between $1 and $2 order by dead_letter_id limit $3)
union all
(select 'reply', outbox_id, request_id from outbox where outbox_id between $1 and $2 order by outbox_id limit $3)
union all
(select 'rule', rule_id, null from rule where rule_id between $1 and $2 order by rule_id limit $3)
union all
(select 'contact', contact_id, null from contact where contact_id between $1 and $2 order by contact_id limit $3)
union all
(select 'event', quarantine_id, null from quarantine where quarantine_id between $1 and $2 order by quarantine_id limit $3)
union all
(select 'approval', p.approval_id, a.request_id from approval p join awaited a on a.key = p.approval_id
 where p.approval_id between $1 and $2 order by p.approval_id limit $3);

-- name: ids_ending
-- Among the newest ones, as no index knows how an id ends.
select kind, id, request_id from (
    (select 'message' as kind, request_id as id, request_id from message_inbox order by request_id desc limit 10000)
    union all
    (select 'dead_letter', dead_letter_id, request_id from dead_letter order by dead_letter_id desc limit 10000)
    union all
    (select 'reply', outbox_id, request_id from outbox order by outbox_id desc limit 10000)
    union all
    (select 'rule', rule_id, null from rule order by rule_id desc limit 10000)
    union all
    (select 'contact', contact_id, null from contact order by contact_id desc limit 10000)
    union all
    (select 'event', quarantine_id, null from quarantine order by quarantine_id desc limit 10000)
    union all
    (select 'approval', p.approval_id, a.request_id from approval p join awaited a on a.key = p.approval_id
     order by p.approval_id desc limit 10000)
) newest
where right(replace(id::text, '-', ''), length($1)) = $1 limit $2;

-- name: rules
select 'rule' as kind, rule_id as id, null::uuid as request_id from rule where name = $1 order by rule_id limit $2;

-- name: memory_ids
-- Of memory: facts below $2 and the one that it is, summaries, runs.
(select 'fact' as kind, f.fact_id as id, null::uuid as request_id
 from facts_for_operator(null, null, $2, $3::integer) f where f.fact_id >= $1)
union all
(select 'fact', f.fact_id, null from fact_for_operator($2) f)
union all
(select 'summary', summary_id, null from summary where summary_id between $1 and $2 order by summary_id limit $3)
union all
(select 'run', run, null from consolidation_run where run between $1 and $2 order by run limit $3);

-- name: memory_ids_ending
select kind, id, null::uuid as request_id from (
    (select 'fact' as kind, f.fact_id as id from facts_for_operator(null, null, null, 10000) f)
    union all
    (select 'summary', summary_id from summary order by summary_id desc limit 10000)
    union all
    (select 'run', run from consolidation_run order by run desc limit 10000)
) newest
where right(replace(id::text, '-', ''), length($1)) = $1 limit $2;
