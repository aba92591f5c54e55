-- name: plan
insert into chore as c (module, account, name, every) values ($1, $2, $3, $4)
on conflict (module, account, name) do update
set every = excluded.every, next_at = least(c.next_at, clock_timestamp() + excluded.every)
where c.every <> excluded.every;

-- part: asked
unnest($1::text[], $2::text[], $3::text[]) as asked (module, account, name)

-- name: take
-- A fence holds its row for key share: a chore is not taken while a transaction of it is going on. Whoever still has the chore
-- after its lease has died, or is stopped; that counts as a failure, but not as a reason to wait.
update chore c set
    owner = $4, epoch = c.epoch + 1, lease_until = clock_timestamp() + $5,
    failures = c.failures + (c.owner is not null)::integer,
    last_at = case when c.owner is null then c.last_at else clock_timestamp() end,
    last_error = case when c.owner is null then c.last_error else 'the worker ' || c.owner || ' has died or was stopped' end
from (
    select c.module, c.account, c.name from chore c join {{asked}} using (module, account, name)
    where c.next_at <= clock_timestamp() and (c.owner is null or c.lease_until <= clock_timestamp())
    order by c.next_at limit $6 for update of c skip locked
) due
where (c.module, c.account, c.name) = (due.module, due.account, due.name)
returning c.module, c.account, c.name, c.epoch;

-- name: wait
select extract(epoch from min(greatest(c.next_at, c.lease_until)) - clock_timestamp())::float8 as seconds
from chore c join {{asked}} using (module, account, name);

-- name: fence
select true from switchboard.chore where module = $1 and account = $2 and name = $3 and epoch = $4 for key share;

-- name: renew
update chore set lease_until = clock_timestamp() + $5 where module = $1 and account = $2 and name = $3 and epoch = $4;

-- name: finish
-- However many runs were missed, one makes up for them. A fifth earlier or later, so that chores do not meet every time.
update chore set
    owner = null, lease_until = null, epoch = epoch + 1, last_at = clock_timestamp(), last_error = $5::text,
    failures = case when $5 is null then 0 else failures + 1 end,
    next_at = clock_timestamp() + (0.8 + 0.4 * random()) * case when $5 is null then every else
        least(interval '1 hour', interval '1 minute' * power(2, least(failures, 10))) end
where module = $1 and account = $2 and name = $3 and epoch = $4;

-- name: release
update chore set owner = null, lease_until = null, epoch = epoch + 1
where module = $1 and account = $2 and name = $3 and epoch = $4;

-- name: failed
-- Those of modules that are not there any more stay as they ended.
select module, account, name, last_at as at, last_error as error, next_at from chore
where last_error is not null and last_at > clock_timestamp() - greatest(2 * every, interval '2 hours')
order by module, account, name;

-- name: overdue
-- Also those that were planned and never done; not what somebody is doing.
select module, account, name, last_at as at from chore
where coalesce(last_at, next_at) < clock_timestamp() - greatest(3 * every, interval '5 minutes')
  and (lease_until is null or lease_until <= clock_timestamp())
order by module, account, name;

-- name: list
select module, account, name, extract(epoch from every)::float8 as every_s, last_at, next_at, last_error as error
from chore order by module, account, name;

-- name: make_due
update chore set next_at = least(next_at, clock_timestamp()) where module = $1 and owner is null;

-- name: accounts
-- For which accounts a module has something to do.
select distinct account from chore where module = $1 and account <> '' order by account;
