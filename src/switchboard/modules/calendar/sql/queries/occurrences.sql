-- name: around
-- What an object is kept by: the calendar's zone, and the window.
select c.zone, s.since, s.until, now() as now
from collection c left join span s on s.account = c.account where c.account = $1 and c.collection = $2;

-- name: set_span
insert into span (account, since, until, rules) values ($1, $2, $3, $4)
on conflict (account) do update set since = excluded.since, until = excluded.until, rules = excluded.rules;

-- name: forget_span
delete from span where account = $1;

-- name: span
select now() as now, s.since, s.until, coalesce(s.rules, '') as rules
from (select) as one left join span s on s.account = $1;

-- name: state
-- How current the mirror is: `as_of` is null unless all of it has been read whole. And the window.
select now() as now, s.since, s.until, c.complete, c.as_of,
       (select count(*) from object o where o.account = $1 and o.problem <> '') as unreadable
from (select coalesce(bool_and(complete), false) as complete,
             case when count(*) = count(synced_at) then min(synced_at) end as as_of
      from collection where account = $1) as c
left join span s on s.account = $1;

-- name: forget
delete from event where account = $1 and collection = $2 and name = $3;

-- name: find_events
insert into event (account, collection, name, place, uid, recurs, title, location, notes, organizer, attendees, answers,
                   status, answer, secret, invited, busy, sought)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18);

-- name: find_dates
insert into occurrence (account, collection, name, place, recurrence, starts, ends, wall_start, wall_end, all_day, zone,
                        guessed)
select $1, $2, $3, o.*
from unnest($4::integer[], $5::text[], $6::timestamptz[], $7::timestamptz[], $8::timestamp[], $9::timestamp[],
            $10::boolean[], $11::text[], $12::boolean[]) as o
on conflict do nothing;

-- name: to_move
-- Objects in the order of their names, after $2 and $3; $4: also those in which nothing recurs.
select o.collection, o.name, o.data, c.zone from object o join collection c using (account, collection)
where o.account = $1 and (o.collection, o.name) > ($2, $3)
  and ($4 or exists (select from event e where e.account = o.account and e.collection = o.collection
                     and e.name = o.name and e.recurs))
order by o.collection, o.name limit $5;

-- name: calendars
-- `unreadable`: how many objects cannot be read. `synced_at` is when the mirror was equal to the server.
select c.collection, c.name, c.writable, c.shared, c.zone, c.complete, c.synced_at, now() as now,
       (select count(*) from object o where o.account = c.account and o.collection = c.collection and o.problem <> '')
           as unreadable
from collection c where c.account = $1 order by c.name, c.collection;

-- part: told
-- The wall: $2 is what is seen of the account, $3 whether it is that of the person who asks.
($2 = 'all' and (not e.secret or $3))

-- part: text_told
({{told}} and not e.invited)

-- part: own
-- Those that somebody else has, or that cannot be written to, keep the person of the account not busy.
c.writable is distinct from false and not c.shared

-- part: quiet
-- Calendars whose days keep nobody busy, unless an event says so.
(c.name ~* '(holiday|feiertag|ferien|birthday|geburtstag|anniversar|anniversaire|jours f|festiv)'
 or c.collection ~* '(birthday|holiday)')

-- name: within
-- From $4 until $5, and for what has no zone from $6 until $7, the walls of whoever asks. What is seen only as busy
-- leaves the database without a word of it, and is not found by words: $8 are patterns of text, $9 of an attendee.
-- The dates come first, and then the event of each: a plan for any range would begin with every event of the account.
with dates as materialized (
    select o.* from occurrence o
    where o.account = $1
      and (o.starts >= $4::timestamptz - interval '2 days' and o.starts < $5 and (o.ends > $4 or o.starts >= $4)
           or o.ends - o.starts > interval '2 days' and o.starts < $5 and o.ends > $4
           or o.starts is null and o.wall_start >= $6::timestamp - interval '2 days' and o.wall_start < $7
              and (o.wall_end > $6 or o.wall_start >= $6)
           or o.starts is null and o.wall_end - o.wall_start > interval '2 days' and o.wall_start < $7
              and o.wall_end > $6)
)
select md5(concat_ws('/', e.uid, o.recurrence)) as same, {{own}} as own,
       case when e.busy <> 'day' then e.busy when {{quiet}} then 'free' else 'busy' end as busy,
       o.starts, o.ends, o.wall_start, o.wall_end, o.all_day,
       case when {{told}} then o.zone else '' end as zone, {{told}} and o.guessed as zone_guessed,
       {{told}} as told, {{told}} and e.invited as invited,
       case when {{told}} then e.uid else '' end as uid, case when {{told}} then o.recurrence else '' end as recurrence,
       case when {{told}} then c.name else '' end as calendar,
       case when {{text_told}} then e.title else '' end as title,
       case when {{text_told}} then e.location else '' end as location,
       case when {{text_told}} then e.notes else '' end as notes,
       case when {{told}} then e.organizer else '' end as organizer,
       case when {{text_told}} then e.attendees else '{}' end as attendees,
       case when {{text_told}} then e.answers else '{}' end as answers,
       case when {{told}} then e.status else '' end as status, case when {{told}} then e.answer else '' end as answer
from dates o
cross join lateral (
    select x.* from event x
    where x.account = o.account and x.collection = o.collection and x.name = o.name and x.place = o.place limit 1
) as e
join collection c on c.account = o.account and c.collection = o.collection
where (cardinality($8::text[]) = 0 or ({{text_told}} and e.sought like all ($8::text[])))
  and ($9 = '' or ({{text_told}} and array_to_string(e.attendees, ' ') like $9))
order by coalesce(o.starts, o.wall_start at time zone $10), o.collection, o.name, o.place
limit $11;

-- name: recurring
-- What recurs, whole, for dates outside the span: only what whoever asks may read all of.
select o.collection, o.name, o.data, c.name as calendar, {{own}} as own, c.zone as calendar_zone from object o
join collection c on c.account = o.account and c.collection = o.collection
where o.account = $1 and $2 = 'all'
  and exists (select from event e where e.account = o.account and e.collection = o.collection and e.name = o.name
              and e.recurs)
  and not exists (select from event e where e.account = o.account and e.collection = o.collection and e.name = o.name
                  and not {{text_told}})
order by o.collection, o.name limit $4;

-- name: of_uid
-- The objects of an event, for whoever may read all of the account; `told` as above.
select o.data, c.zone as calendar_zone from object o
join event e on e.account = o.account and e.collection = o.collection and e.name = o.name
join collection c on c.account = o.account and c.collection = o.collection
where o.account = $1 and {{told}} and e.uid = $4
order by o.collection, o.name, e.place limit 1;

-- name: of_person
-- What is kept for a person: the objects of their own accounts, and of what was written there or by them.
select o.account, c.name as calendar, o.name, o.data as event
from origin g join object o using (account) join collection c using (account, collection)
where g.account = $1 and g.owner = any ($2::text[])
union all
select w.account, w.collection, w.name, coalesce(w.after, w.before)
from write w left join origin g using (account)
where w.account = $1 and (w.made_by = any ($2::text[]) or g.owner = any ($2::text[]))
order by calendar, name;

-- name: erase_of_person
-- The objects are counted; with the collections goes from where the next sync would ask, and with the origin whose it was.
with forgotten as (
    delete from origin g where g.account = $1 and g.owner = any ($2::text[])
), gone as (
    delete from collection c using origin g where c.account = $1 and g.account = c.account and g.owner = any ($2::text[])
)
delete from object o using origin g where o.account = $1 and g.account = o.account and g.owner = any ($2::text[]);
