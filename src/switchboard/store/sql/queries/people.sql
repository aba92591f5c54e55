-- name: version
select coalesce(max(version), 0) from people_version;

-- name: new_version
-- Before all else in its transaction: changes wait for each other.
insert into people_version (version) values (1)
on conflict (one) do update set version = people_version.version + 1;

-- name: handles
select h.channel, h.realm, h.identity, h.person_id as person,
       array(select g.name from person_group g where g.person_id = h.person_id order by 1) as groups
from person_handle h;

-- name: ids
select person_id from person;

-- name: groups
select distinct name from person_group;

-- name: page
select p.person_id, p.name, p.created_at,
       array(select g.name from person_group g where g.person_id = p.person_id order by 1) as groups
from person p
where ($1::text is null or p.person_id > $1) and ($2::text is null or p.person_id = $2)
order by p.person_id limit $3;

-- name: handles_of
select person_id, channel, realm, identity, linked_at, linked_by
from person_handle where person_id = any ($1::text[]) order by channel, realm, identity;

-- name: owner_of_handle
select person_id from person_handle where channel = $1 and realm = $2 and identity = $3;

-- name: names
-- Of those of these handles that are linked; key: what the caller calls each.
select g.key, p.person_id, p.name
from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as g (key, channel, realm, identity)
join person_handle h on h.channel = g.channel and h.realm = g.realm and h.identity = g.identity
join person p on p.person_id = h.person_id;

-- name: create
insert into person (person_id, name) values ($1, $2) on conflict do nothing;

-- name: rename
update person set name = $2 where person_id = $1;

-- name: delete
delete from person where person_id = $1;

-- name: link
insert into person_handle (channel, realm, identity, person_id, linked_by) values ($2, $3, $4, $1, $5)
on conflict do nothing;

-- name: unlink
delete from person_handle where person_id = $1 and channel = $2 and realm = $3 and identity = $4;

-- name: join
insert into person_group (person_id, name) values ($1, $2) on conflict do nothing;

-- name: leave
delete from person_group where person_id = $1 and name = $2;

-- name: lock_owners
-- Before it is asked whom a butler names: whoever changes that waits.
lock table rule_set in share row exclusive mode;

-- name: owners_changed
select owners_changed($2, $3)
where exists (select from member m where m.options -> 'owners' ? ('person:' || $1::text));

-- name: lock
-- Before handles are read in order to change them: changes wait for each other, and a version is made only if there is one.
select version from people_version for update;

-- name: new_code
-- It takes the place of the one before. No row: nobody has this handle any more.
insert into link_code as c (channel, realm, identity, key, expires_at)
select h.channel, h.realm, h.identity, $4, clock_timestamp() + $5::interval
from person_handle h where h.channel = $1 and h.realm = $2 and h.identity = $3
on conflict (channel, realm, identity) do update
    set key = excluded.key, tries = 0, expires_at = excluded.expires_at, used_by = null
returning c.expires_at;

-- name: use_code
-- The handle that asked for the code, and its person, if the code is valid, or message $2 has used it before.
update link_code c set used_by = $2
from person_handle h
where (h.channel, h.realm, h.identity) = (c.channel, c.realm, c.identity) and c.key = $1
  and (c.used_by = $2 or c.used_by is null and c.tries < 5 and c.expires_at > clock_timestamp())
returning h.person_id, h.channel, h.realm, h.identity;

-- name: count_try
-- Of each code that is valid; the fifth locks it.
update link_code set tries = tries + 1 where used_by is null and tries < 5 and expires_at > clock_timestamp();

-- name: lock_code
-- Others have read it.
update link_code set tries = 5 where key = $1 and used_by is null;

-- name: called
-- What these senders are called: the person whom a handle is linked to, if it is, and the name that a message came under.
select g.n, p.name as person,
       (select m.envelope #>> '{sender,display_name}' from message_inbox m where m.request_id = g.request_id) as display_name
from unnest($1::integer[], $2::text[], $3::text[], $4::text[], $5::uuid[]) as g (n, channel, realm, identity, request_id)
left join person_handle h on h.channel = g.channel and h.realm = g.realm and h.identity = g.identity
left join person p on p.person_id = h.person_id;
