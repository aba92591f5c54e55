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
