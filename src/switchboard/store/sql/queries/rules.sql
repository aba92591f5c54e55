-- name: moved_on
-- The first change whose rule is not stored as its writer saw it: no version is a rule that is not there.
select c.rule_id, c.seen, r.version as stored, s.version as changed, s.author
from unnest($1::uuid[], $2::bigint[]) as c (rule_id, seen)
left join rule r on r.rule_id = c.rule_id
left join rule_set s on s.version = coalesce(
    r.version, (select h.version from rule_change h where h.rule_id = c.rule_id order by h.version desc limit 1))
where r.version is distinct from c.seen
limit 1;

-- name: taken
-- An id that was ever used by a rule of another team: reusing it would prevent the restoration of that rule.
select c.rule_id, h.team_id
from unnest($1::uuid[], $2::text[]) as c (rule_id, team_id)
join rule_change h on h.rule_id = c.rule_id and h.team_id <> c.team_id
limit 1;

-- name: new_version
insert into rule_set (version, author, reason, teams) values ($1, $2, $3, $4);

-- name: remove
delete from rule where rule_id = any ($1::uuid[]);

-- name: put
-- The history is written, and what it says of the rules afterwards becomes their rows.
with remembered as (
    insert into rule_change (team_id, rule_id, version, before, after)
    select c.team_id, c.rule_id, $1, c.before::jsonb, c.after::jsonb
    from unnest($2::text[], $3::uuid[], $4::text[], $5::text[]) as c (team_id, rule_id, before, after)
    returning after
)
insert into rule (rule_id, team_id, name, channel, filters, targets, priority, active, copy, reply_to_automatic,
                  created_by, updated_by, created_at, updated_at, version, source)
select r.rule_id, r.team_id, r.name, r.channel, r.filters, r.targets, r.priority, r.active, r.copy,
       r.reply_to_automatic, r.created_by, r.updated_by, r.created_at, r.updated_at, r.version, r.source
from remembered
cross join jsonb_to_record(remembered.after) as r (
    rule_id uuid, team_id text, name text, channel text, filters jsonb, targets jsonb, priority integer, active boolean,
    copy boolean, reply_to_automatic boolean, created_by text, updated_by text, created_at timestamptz,
    updated_at timestamptz, version bigint, source text)
where remembered.after is not null
on conflict (rule_id) do update set
    name = excluded.name, channel = excluded.channel, filters = excluded.filters, targets = excluded.targets,
    priority = excluded.priority, active = excluded.active, copy = excluded.copy,
    reply_to_automatic = excluded.reply_to_automatic, created_by = excluded.created_by, updated_by = excluded.updated_by,
    created_at = excluded.created_at, updated_at = excluded.updated_at,
    version = excluded.version, source = excluded.source;

-- name: all
select * from rule where ($1::uuid is null or rule_id > $1) order by rule_id limit $2;

-- name: of_team
select * from rule where team_id = $3 and ($1::uuid is null or rule_id > $1) order by rule_id limit $2;

-- name: of_source
-- The second condition on the source is what its partial index is recognised by.
select * from rule
where source = $3 and source <> '' and ($4::text is null or team_id = $4) and ($1::uuid is null or rule_id > $1)
order by rule_id limit $2;

-- name: sops
select source, count(*) as rules, count(*) filter (where active) as active,
       array_agg(distinct team_id order by team_id) as teams
from rule where source <> '' and source > $1 group by source order by source limit $2::bigint;

-- name: get
select * from rule where rule_id = $1;

-- part: entry
s.version, s.author, s.reason, s.created_at, s.teams,
       (select count(*) from rule_change o where o.version = s.version) as changes

-- name: history
select {{entry}}, c.before, c.after
from rule_change c join rule_set s on s.version = c.version
where c.rule_id = $1 order by c.version desc;

-- name: versions
select {{entry}}
from rule_set s where ($1::bigint is null or s.version < $1) order by s.version desc limit $2;

-- name: version
select {{entry}}
from rule_set s where s.version = $1;

-- name: changes_of
select before, after from rule_change where version = $1 order by team_id, rule_id limit $2;

-- name: changes_between
select f.before, l.after
from (select distinct on (team_id, rule_id) team_id, rule_id, before from rule_change
      where version > $1 and version <= $2 order by team_id, rule_id, version) f
join (select distinct on (team_id, rule_id) team_id, rule_id, after from rule_change
      where version > $1 and version <= $2 order by team_id, rule_id, version desc) l using (team_id, rule_id)
where f.before is not null or l.after is not null
order by team_id, rule_id;

-- name: unchanged_since
select * from rule where version <= $1 and ($2::text[] is null or team_id = any ($2)) order by rule_id;

-- name: changed_since
select distinct on (team_id, rule_id) before from rule_change
where version > $1 and ($2::text[] is null or team_id = any ($2))
order by team_id, rule_id, version;

-- name: teams_since
select exists (select from rule_set where version > $1 and version <= $2 and teams);

-- name: changes_since
select before, after from rule_change where version > $1 and version <= $2 order by version, team_id, rule_id limit $3;

-- name: extent_since
select count(*) as changes, array_agg(distinct team_id) as teams from rule_change where version > $1 and version <= $2;

-- name: allow_automatic
-- Whether a rule that led a message to its butlers lets replies to automatic mail be sent.
select exists (
    select from decision d
    cross join json_array_elements(d.trail) as step
    join rule r on r.rule_id = (step ->> 'rule_id')::uuid
    where d.request_id = $1 and r.reply_to_automatic
);
