-- part: of_endpoint
-- What the endpoint ($2, $3) has uploaded within a day, or a message of it has: what others have counts for nothing.
(
    exists (
        select from blob_upload u
        where u.blob = b.blob and u.channel = $2 and u.endpoint = $3 and u.uploaded_at > clock_timestamp() - interval '1 day'
    )
    or exists (
        select from message_blob r join message_inbox m using (request_id)
        where r.blob = b.blob and m.channel = $2 and m.endpoint = $3
    )
)

-- part: known
-- As the endpoint of the message uploaded it, or an operator.
((u.channel, u.endpoint) = (m.channel, m.endpoint) or (u.channel, u.endpoint) = ('', ''))

-- name: used
-- Bytes that the endpoint has uploaded within a day, all that are kept of it, and all of everybody. Each copy counts, though
-- it is stored once: nobody is to see whether others have the same.
select coalesce(sum(u.size_bytes) filter (where u.uploaded_at > clock_timestamp() - interval '1 day'), 0)::bigint as today,
       coalesce(sum(u.size_bytes) filter (where u.named or u.uploaded_at > clock_timestamp() - interval '1 day'), 0)::bigint as endpoint,
       (coalesce((select sum(a.size_bytes) from blob_upload a), 0)
        + coalesce((select sum(x.size_bytes) from blob_made x), 0))::bigint as total
from blob_upload u where u.channel = $1 and u.endpoint = $2;

-- name: claim
-- An upload of the same bytes waits here until the other has ended. New: they are still to be written.
insert into blob as b (blob, size_bytes, media_type) values ($1, $2, $3)
on conflict (blob) do update set used_at = clock_timestamp()
returning b.xmax = 0 as new;

-- name: uploaded
insert into blob_upload as u (blob, size_bytes, media_type, channel, endpoint) values ($1, $2, $3, $4, $5)
on conflict (blob, channel, endpoint) do update set uploaded_at = clock_timestamp()
returning u.xmax = 0 as first, u.media_type;

-- name: write_piece
insert into blob_piece (blob, n, bytes) values ($1, $2, $3) on conflict (blob, n) do update set bytes = excluded.bytes;

-- name: read_piece
select bytes from blob_piece where blob = $1 and n = $2;

-- name: remove_pieces
delete from blob_piece where blob = any ($1::bytea[]);

-- name: name
-- What may be named of these, by a message of this endpoint; it is not removed within a day from now.
update blob k set used_at = clock_timestamp()
where k.blob in (
    select b.blob from blob b
    where b.blob = any ($1::bytea[]) and ($4::boolean or {{of_endpoint}})
    order by b.blob for no key update
)
returning k.blob;

-- name: refer
-- Uploads are locked in one order, whichever plan finds them; `forget_held` locks them before it looks for messages.
with referred as (
    insert into message_blob (blob, request_id)
        select r.blob, r.request_id from unnest($1::bytea[], $2::uuid[]) as r (blob, request_id)
        order by r.blob, r.request_id
        on conflict do nothing
        returning blob, request_id
), locked as (
    select u.blob, u.channel, u.endpoint from blob_upload u
    where (u.blob, u.channel, u.endpoint) in (
        select r.blob, m.channel, m.endpoint from referred r join message_inbox m using (request_id)
    )
    order by u.blob, u.channel, u.endpoint for no key update
)
update blob_upload u set named = true from locked k
where (u.blob, u.channel, u.endpoint) = (k.blob, k.channel, k.endpoint);

-- name: made
insert into blob_made as x (blob, size_bytes, media_type, request_id, system_id) values ($1, $2, $3, $4, $5)
on conflict (blob, request_id, system_id) do update set size_bytes = x.size_bytes
returning x.xmax = 0 as first, x.media_type;

-- name: count_made
select count(*) from blob_made where request_id = $1 and system_id = $2;

-- name: is_answered
-- None of its deliveries is open; null where it never had one.
select bool_and(d.settled_at is not null) from delivery d where d.request_id = $1 and d.system_id = $2;

-- name: sendable
-- What an answer of this butler to this message may have: what it made for it, and what came with the message. It is not
-- removed within a day from now.
update blob b set used_at = clock_timestamp()
where b.blob in (
    select k.blob from blob k
    where k.blob = any ($1::bytea[]) and (
        exists (select from blob_made x where x.blob = k.blob and x.request_id = $2 and x.system_id = $3)
        or exists (select from message_blob r where r.blob = k.blob and r.request_id = $2)
    )
    order by k.blob for no key update
)
returning b.blob, b.size_bytes, coalesce(
    (select x.media_type from blob_made x where x.blob = b.blob and x.request_id = $2 and x.system_id = $3),
    (select u.media_type from message_inbox m join blob_upload u on {{known}} where u.blob = b.blob and m.request_id = $2
     order by u.channel desc limit 1),
    b.media_type) as media_type;

-- name: find_all
select b.size_bytes, coalesce(
    (select u.media_type from blob_upload u where u.blob = b.blob order by u.uploaded_at, u.channel, u.endpoint limit 1),
    b.media_type) as media_type
from blob b where b.blob = $1;

-- name: find_bytes
select b.size_bytes, b.media_type from blob b where b.blob = $1;

-- name: find_of_endpoint
select b.size_bytes, coalesce(
    (select u.media_type from blob_upload u where u.blob = b.blob and u.channel = $2 and u.endpoint = $3), b.media_type) as media_type
from blob b where b.blob = $1 and {{of_endpoint}};

-- name: find_of_system
select b.size_bytes, coalesce(u.media_type, b.media_type) as media_type
from blob b
join message_blob r using (blob)
join delivery d on d.request_id = r.request_id and d.system_id = $2
join message_inbox m on m.request_id = r.request_id
left join blob_upload u on u.blob = b.blob and {{known}}
where b.blob = $1 order by u.channel desc limit 1;

-- name: forget
with gone as (
    delete from blob where blob in (
        select b.blob from blob b
        where b.used_at < clock_timestamp() - $1::interval
          and not exists (select from message_blob r where r.blob = b.blob)
          and not exists (select from outbox_blob o where o.blob = b.blob)
          and not exists (
              select from blob_made x join delivery d using (request_id, system_id)
              where x.blob = b.blob and d.settled_at is null
          )
        order by b.blob limit $2 for update skip locked
    )
    returning blob
), uploads as (
    delete from blob_upload u using gone g where u.blob = g.blob
), made as (
    delete from blob_made x using gone g where x.blob = g.blob
), unnamed as (
    delete from blob_upload where (blob, channel, endpoint) in (
        select u.blob, u.channel, u.endpoint from blob_upload u
        where not u.named and u.channel <> '' and u.uploaded_at < clock_timestamp() - $1::interval
        order by u.uploaded_at limit $2 for update skip locked
    )
)
select blob from gone;
