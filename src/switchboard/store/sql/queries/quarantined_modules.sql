-- name: quarantined
select q.module, q.why, q.since from module_quarantine q order by q.module;

-- name: harm
insert into module_harm (module, kind) values ($1, $2);

-- name: mark
insert into module_use (module, instance) values ($1, $2)
on conflict (module, instance) do update set beat = clock_timestamp();

-- name: beat
update module_use u set beat = clock_timestamp() where u.instance = $1;

-- name: unmark
delete from module_use u where u.instance = $1 and u.module = any ($2);

-- name: note_deaths
with gone as (
    delete from module_use u where u.beat < clock_timestamp() - $1::interval returning u.module
)
insert into module_harm (module, kind) select g.module, 'death' from gone g;

-- name: judge
-- Those that have done enough harm since they were last released; what is older than a day is of no interest.
with forgotten as (
    delete from module_harm h where h.at < clock_timestamp() - interval '1 day'
), found as (
    select h.module,
           count(*) filter (where h.kind = 'hold' and h.at > clock_timestamp() - interval '1 hour') as holds,
           count(*) filter (where h.kind = 'death' and h.at > clock_timestamp() - interval '10 minutes') as deaths
    from module_harm h group by h.module
)
insert into module_quarantine (module, why)
select f.module, case when f.deaths >= 2 then 'it was in use when a worker died, twice in 10 minutes'
                      else 'it held the event loop of workers for more than a second, three times in an hour' end
from found f where f.deaths >= 2 or f.holds >= 3
on conflict (module) do nothing;

-- name: release
with harmless as (
    delete from module_harm h where h.module = $1
)
delete from module_quarantine q where q.module = $1 returning q.module;

-- name: failed
insert into module_failure (module, host, why) values ($1, $2, $3)
on conflict (module, host) do update set why = excluded.why, at = clock_timestamp();

-- name: opened
delete from module_failure f where f.module = $1 and f.host = $2;

-- name: failures
select f.module, f.host, f.why, f.at from module_failure f order by f.module, f.host;
