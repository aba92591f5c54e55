-- name: version
select coalesce(max(version), 0) from rule_set;

-- name: one_at_a_time
lock table rule_set in share row exclusive mode;

-- name: teams
select team_id, parent_id, purpose, classify from team order by team_id;

-- name: members
select system_id, team_id, number, engine, options, description, capabilities, active from member order by system_id;

-- name: owners
select o.system_id, c.channel, c.endpoint, c.identity from contact_owner o join contact c using (contact_id)
where c.state = 'approved';

-- name: owning_handles
select m.system_id, h.channel, h.realm as endpoint, h.identity
from member m
cross join lateral jsonb_array_elements(
    case jsonb_typeof(m.options -> 'owners') when 'array' then m.options -> 'owners' else '[]' end) o (named)
join person_handle h on 'person:' || h.person_id = o.named #>> '{}';

-- name: ownership
select o.contact_id, o.system_id, o.since from contact_owner o join member m using (system_id) where m.team_id = $1;

-- name: keep_ownership
insert into contact_owner (contact_id, system_id, since)
select $1, m.system_id, $3 from member m where m.system_id = $2;

-- name: rules
select * from rule;

-- name: first_rules
-- As `rank` of core/routing/index.py puts them, catch-alls after those; what is switched off comes last.
select r.* from team t
cross join lateral (
    select * from rule where team_id = t.team_id
    order by active desc, channel = '*' and filters = '{}', priority desc,
             (select count(*) from (
                  select jsonb_object_keys(filters) union
                  select i.key from jsonb_object_keys(filters) f, jsonb_array_elements_text($3::jsonb -> f) i (key)
              ) pinned) desc, channel = '*', created_at, rule_id
    limit $1) r
where t.team_id = any ($2::text[]);

-- name: rule_counts
select team_id, count(*) as rules from rule where team_id = any ($1::text[]) group by team_id;

-- name: add_team
insert into team (team_id, parent_id, purpose, classify) values ($1, $2, $3, $4);

-- name: put_classify
update team set classify = $2 where team_id = $1 and classify <> $2;

-- name: put_member
insert into member (system_id, team_id, number, engine, options, description, capabilities, active)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (system_id) do update set team_id = excluded.team_id, number = excluded.number, engine = excluded.engine,
    options = excluded.options, description = excluded.description, capabilities = excluded.capabilities,
    active = excluded.active
where (member.team_id, member.number, member.engine, member.options, member.description, member.capabilities, member.active)
      is distinct from (excluded.team_id, excluded.number, excluded.engine, excluded.options, excluded.description,
                        excluded.capabilities, excluded.active);

-- name: remove_members
delete from member where team_id = $1;

-- name: remove_team
delete from team where team_id = $1;
