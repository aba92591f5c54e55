-- name: version
select coalesce(max(version), 0) from rule_set;

-- name: one_at_a_time
lock table rule_set in share row exclusive mode;

-- name: teams
select team_id, parent_id, purpose from team order by team_id;

-- name: members
select system_id, team_id, number, engine, options, description, capabilities, active from member order by system_id;

-- name: rules
select * from rule;

-- name: add_team
insert into team (team_id, parent_id, purpose) values ($1, $2, $3);

-- name: put_member
insert into member (system_id, team_id, number, engine, options, description, capabilities, active)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (system_id) do update set team_id = excluded.team_id, number = excluded.number, engine = excluded.engine,
    options = excluded.options, description = excluded.description, capabilities = excluded.capabilities,
    active = excluded.active
where (member.team_id, member.number, member.engine, member.options, member.description, member.capabilities, member.active)
      is distinct from (excluded.team_id, excluded.number, excluded.engine, excluded.options, excluded.description,
                        excluded.capabilities, excluded.active);
