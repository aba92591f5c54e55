-- part: fields
f.task_id, f.revision, f.due, f.wall, f.zone, f.state, f.late_s, f.passed, f.request_id, f.gate_exit, f.why, f.tell,
f.told_at, f.tries, f.made_at, f.ended_at

-- name: add
-- Nothing if there is one: what was due once is due once, whatever the clocks say.
insert into firing (account, task_id, revision, due, wall, zone, state, late_s, passed, why, tell, ended_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, case when $7 = 'missed' then now() end)
on conflict do nothing;

-- name: open
-- The oldest of each person first, so that nobody's many keep others waiting. Conditions may be slow, so they are last.
select {{fields}} from (
    select f.*, t.gate <> '' as gated, row_number() over (partition by t.person order by f.next_try, f.due) as turn
    from firing f join task t on t.account = f.account and t.task_id = f.task_id
    where f.account = $1 and f.next_try <= now() and (f.state in ('due', 'gated') or (f.tell <> '' and f.told_at is null))
) f where f.turn <= $2 order by f.gated, f.turn, f.due limit $3;

-- name: caught_up
-- How many late ones of each person were carried out within the last minute.
select t.person, count(*) as number from firing f join task t on t.account = f.account and t.task_id = f.task_id
where f.account = $1 and f.ended_at > now() - interval '1 minute' and f.late_s > $2 and f.state in ('fired', 'said')
group by t.person;

-- name: finish
update firing set state = $5, request_id = coalesce($6, request_id), gate_exit = coalesce($7, gate_exit), why = $8,
       tell = $9, ended_at = now(), next_try = now(), tries = 0
where account = $1 and task_id = $2 and revision = $3 and due = $4 and state in ('due', 'gated');

-- name: note_gated
update firing set state = 'gated', gate_exit = 0
where account = $1 and task_id = $2 and revision = $3 and due = $4 and state = 'due';

-- name: note_told
update firing set told_at = now(), request_id = coalesce(request_id, $5)
where account = $1 and task_id = $2 and revision = $3 and due = $4 and told_at is null;

-- name: note_submitted
update firing set state = $5, why = '' where account = $1 and task_id = $2 and revision = $3 and due = $4;

-- name: try_later
update firing set tries = tries + 1, next_try = now() + make_interval(secs => $5::double precision), why = $6
where account = $1 and task_id = $2 and revision = $3 and due = $4;

-- name: of_task
select {{fields}} from firing f where f.account = $1 and f.task_id = $2 order by f.revision desc, f.due desc limit $3;

-- name: last_of_tasks
select {{fields}} from unnest($2::uuid[]) as t (task_id)
cross join lateral (
    select * from firing f where f.account = $1 and f.task_id = t.task_id order by f.revision desc, f.due desc limit 1
) f;

-- name: forget
delete from firing where account = $1 and ended_at < now() - interval '90 days';
