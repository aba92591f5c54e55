-- What a server lists, _tools: [{"tool", "said", "mark"}]. The first tools that it ever lists are accepted; later, what is
-- new or different is disabled until an operator accepts it, also if the server takes it back.
create or replace function see_mcp_tools(_server text, _tools text) returns void
language plpgsql as $$
declare
    _first boolean;
begin
    insert into mcp_server (server) values (_server)
        on conflict (server) do update set at = clock_timestamp(), why = null;
    select not exists (select from mcp_tool t where t.server = _server) into _first;
    update mcp_tool t set seen = null, seen_mark = null
        where t.server = _server and t.seen_mark is not null
          and t.tool not in (select e->>'tool' from json_array_elements(_tools::json) e);
    insert into mcp_tool as t (server, tool, accepted, accepted_mark, accepted_at, seen, seen_mark, disabled_at)
        select _server, e->>'tool', case when _first then e->'said' end, case when _first then e->>'mark' end,
               case when _first then clock_timestamp() end, e->'said', e->>'mark',
               case when not _first then clock_timestamp() end
        from json_array_elements(_tools::json) e
        on conflict (server, tool) do update
        set seen = excluded.seen, seen_mark = excluded.seen_mark, seen_at = clock_timestamp(),
            disabled_at = coalesce(t.disabled_at,
                                   case when t.accepted_mark is distinct from excluded.seen_mark then clock_timestamp() end);
end $$;
