-- name: known
select t.server, t.accepted, t.accepted_mark, t.seen_mark is not null and t.disabled_at is null as usable
from mcp_tool t where t.server = any ($1) order by t.server, t.tool;

-- name: see
select see_mcp_tools($1, $2);

-- name: failed
insert into mcp_server (server, why) values ($1, $2)
on conflict (server) do update set at = clock_timestamp(), why = excluded.why;

-- name: servers
select s.server, s.at, s.why, count(*) filter (where t.seen_mark is not null and t.disabled_at is null) as tools,
       count(*) filter (where t.seen_mark is not null and t.disabled_at is not null) as waiting
from mcp_server s left join mcp_tool t on t.server = s.server group by s.server order by s.server;

-- name: tools
select t.tool, t.accepted, t.accepted_mark, t.accepted_at, t.accepted_by, t.seen, t.seen_mark, t.seen_at,
       case when t.seen_mark is null then 'gone' when t.disabled_at is null then 'accepted'
            when t.accepted_mark is null then 'new' else 'changed' end as state
from mcp_tool t where t.server = $1 order by t.tool;

-- name: accept
-- As it was seen, if that is still what the operator has looked at.
update mcp_tool t
set accepted = t.seen, accepted_mark = t.seen_mark, accepted_at = clock_timestamp(), accepted_by = $4, disabled_at = null
where t.server = $1 and t.tool = $2 and t.seen_mark = $3;
