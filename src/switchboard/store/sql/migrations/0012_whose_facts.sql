-- Whose a fact is, so that persons whom operators make of handles read their own: the handle that certainly said it, and a hash
-- of its words alone, by which it is known to be forgotten under each handle of its author. No row changes by linking.

-- key: as handle_key computes it. Of the ways to make bytes of a text, only decode counts as immutable.
alter table person_handle add column key uuid not null generated always as (
    encode(substr(sha256(decode(
        length(channel)::text || ',' || length(realm)::text || ':' || replace(channel || realm || identity, '\', '\\'),
        'escape')), 1, 16), 'hex')::uuid) stored;
create unique index person_handle_key on person_handle (key);

alter table fact add column handle uuid, add column words uuid;
create index fact_handle on fact (system_id, handle) where handle is not null;

-- What was learned before: the author is channel/endpoint/sender, each quoted as in a URL, and = is only in shortened ones.
select set_config('switchboard.facts', 'open', true);
with author as (
    select distinct f.author from fact f
    where f.author ~ '^(telegram|telegram_bot|telegram_user_client|discord|signal|slack|email)/[^/=]+/[^/=]+$'
), part as (
    select a.author, p.n, convert_from(string_agg(
        case when c.piece[1] like '\%%' then decode(substr(c.piece[1], 2), 'hex') else convert_to(c.piece[1], 'UTF8') end,
        ''::bytea order by c.n), 'UTF8') as text
    from author a
    cross join lateral regexp_split_to_table(a.author, '/') with ordinality as p (text, n)
    cross join lateral regexp_matches(p.text, '%..|[^%]+', 'g') with ordinality as c (piece, n)
    group by a.author, p.n
), handle as (
    select c.author, c.text as channel, case when c.text = 'slack' then e.text else '' end as realm,
           case when c.text = 'email' then lower(coalesce(substring(s.text from '<([^<>]+)>$'), s.text)) else s.text end as identity
    from part c join part e on e.author = c.author and e.n = 2 join part s on s.author = c.author and s.n = 3
    where c.n = 1 and e.text not like 'embedded:%'
)
update fact f set handle = encode(substr(sha256(decode(
        length(h.channel)::text || ',' || length(h.realm)::text || ':' || replace(h.channel || h.realm || h.identity, '\', '\\'),
        'escape')), 1, 16), 'hex')::uuid
from handle h
where h.author = f.author and (h.channel <> 'email' or h.identity ~ '^[^[:space:]<>"]+@[^[:space:]<>@*]+$');
select set_config('switchboard.facts', '', true);

-- They have an argument more.
drop function if exists visible(text, uuid, text, boolean, boolean);
drop function if exists share_fact(uuid, text, text, boolean, boolean);
