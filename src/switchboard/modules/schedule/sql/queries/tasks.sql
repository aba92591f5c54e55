-- part: fields
t.task_id, t.system_id, t.person, t.place, t.private, t.kind, t.text, t.own, t.tainted, t.zone, t.wall, t.cron, t.gate,
t.origin, t.revision, t.state, t.why, t.next_at, t.next_wall, t.next_fold, t.rules, t.failures, t.made_at,
case when t.state = 'paused' then t.changed_at end as paused_at

-- name: look
-- All that an idle second costs. $1 is the account, here and everywhere.
select now() as now,
       exists (select from task t where t.account = $1 and t.state = 'active' and t.next_at <= now()) as due,
       exists (select from firing f where f.account = $1 and f.next_try <= now()
               and (f.state in ('due', 'gated') or (f.tell <> '' and f.told_at is null))) as open;

-- name: take_due
select {{fields}} from task t
where t.account = $1 and t.state = 'active' and t.next_at <= now()
order by t.next_at limit $2 for update skip locked;

-- name: move_on
-- The next time, or none: it was due for the last time.
update task set next_at = $3, next_wall = $4, next_fold = $5, rules = $6, changed_at = now(),
       state = case when $3::timestamptz is null then 'done' else 'active' end
where account = $1 and task_id = $2;

-- name: pause
update task set state = 'paused', why = $3, changed_at = now() where account = $1 and task_id = $2 and state <> 'cancelled';

-- name: pause_active
-- By an operator.
update task set state = 'paused', why = $3, changed_at = now() where account = $1 and task_id = $2 and state = 'active';

-- name: resume
-- By an operator: from its next time on.
update task set state = 'active', why = '', failures = 0, next_at = $3, next_wall = $4, next_fold = $5, rules = $6,
       changed_at = now()
where account = $1 and task_id = $2 and state = 'paused';

-- name: zones
select zone, rules, min(task_id::text) as example from task where account = $1 and state = 'active' group by zone, rules;

-- name: of_zone
select {{fields}} from task t
where t.account = $1 and t.state = 'active' and t.zone = $2 and t.rules <> $3 order by t.task_id limit $4 for update;

-- name: add
-- The key of the step that makes it is its id: a call that is repeated makes no second one.
insert into task (account, task_id, system_id, person, place, private, kind, text, own, tainted, zone, wall, cron, gate,
                  origin, next_at, next_wall, next_fold, rules)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
on conflict do nothing;

-- name: find
select {{fields}} from task t where t.account = $1 and t.task_id = $2;

-- name: lock
-- Whoever else would carry it out now waits.
select {{fields}} from task t where t.account = $1 and t.task_id = $2 for update;

-- name: count_of
select count(*) as number from task where account = $1 and person = $2 and state in ('active', 'paused');

-- part: visible
t.account = $1 and t.system_id = $2 and t.private = $5
and case when t.private then t.person = $3 else t.place = $4 end

-- part: to_come
-- What was due for the last time is, until that is carried out.
(t.state in ('active', 'paused') or t.state = 'done' and exists (
    select from firing f where f.account = t.account and f.task_id = t.task_id and f.state in ('due', 'gated')))

-- name: of_reader
-- Whom a butler may tell of it: in private whoever made it there, in a group all of the group.
select {{fields}} from task t where {{visible}} and {{to_come}} order by t.next_at nulls last, t.task_id limit $6;

-- name: same
-- A task that is still to come and says the same at the same time: models make calls twice.
select {{fields}} from task t
where {{visible}} and t.person = $3 and t.state = 'active' and t.kind = $6 and t.text = $7 and t.zone = $8
      and t.wall is not distinct from $9::timestamp and t.cron = $10 and t.gate = $11
limit 1;

-- name: cancel_of_reader
update task as t set state = 'cancelled', why = 'cancelled in a conversation', changed_at = now(), revision = revision + 1
where {{visible}} and t.task_id = $6 and {{to_come}};

-- name: page
-- For operators: by id, newest first.
select {{fields}} from task t
where t.account = $1 and ($2::uuid is null or t.task_id < $2) and ($3::text is null or t.system_id = $3)
      and ($4::text is null or t.state = $4)
      and ($6::text[] is null or replace(t.task_id::text, '-', '') like any ($6))
order by t.task_id desc limit $5;

-- name: coming
-- For operators: those that are due again after the task $3, which is due at $2; the next one first.
select {{fields}} from task t
where t.account = $1 and t.state = 'active' and ($2::timestamptz is null or (t.next_at, t.task_id) > ($2, $3::uuid))
      and ($4::text is null or t.system_id = $4)
order by t.next_at, t.task_id limit $5;

-- name: cancel
update task as t set state = 'cancelled', why = $3, changed_at = now(), revision = revision + 1
where t.account = $1 and t.task_id = $2 and {{to_come}};

-- name: wake
-- A paused task that recurs goes on, from its next time; one that does not is over, unless it is paused again.
update task set state = case when $3::timestamptz is null then 'done' else 'active' end, why = '', failures = 0,
       next_at = $3, next_wall = $4, next_fold = $5, rules = $6, changed_at = now()
where account = $1 and task_id = $2 and state <> 'cancelled';

-- name: count_failure
update task set failures = failures + 1 where account = $1 and task_id = $2 returning failures;

-- name: forget_failures
update task set failures = 0 where account = $1 and task_id = $2 and failures > 0;

-- name: forget
delete from task t where t.account = $1 and t.state in ('done', 'cancelled') and t.changed_at < now() - interval '90 days'
      and not exists (select from firing f where f.account = $1 and f.task_id = t.task_id);

-- name: of_person
select t.task_id, t.system_id, t.kind, t.text, t.zone, t.wall, t.cron, t.state, t.made_at
from task t where t.account = $1 and t.person = any ($2::text[]) order by t.made_at;

-- name: lock_of_person
-- A firing that is just being made is waited for, so that it is erased with its task.
select t.task_id from task t where t.account = $1 and t.person = any ($2::text[]) order by t.task_id for update;

-- name: erase_of_person
with firings as (
    delete from firing f using task t
    where f.account = $1 and t.account = $1 and t.task_id = f.task_id and t.person = any ($2::text[]))
delete from task t where t.account = $1 and t.person = any ($2::text[]);
