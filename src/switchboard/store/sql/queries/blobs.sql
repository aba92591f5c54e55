-- name: used
-- How many bytes the endpoint has uploaded within a day, and how many there are of all.
select coalesce((select sum(u.size_bytes) from blob_upload u
                 where u.channel = $1 and u.endpoint = $2 and u.uploaded_at > clock_timestamp() - interval '1 day'), 0)::bigint as endpoint,
       coalesce((select sum(b.size_bytes) from blob b), 0)::bigint as total;

-- name: claim
-- An upload of the same bytes waits here until the other has ended. New: they are still to be written.
insert into blob as b (blob, size_bytes, media_type) values ($1, $2, $3)
on conflict (blob) do update set used_at = clock_timestamp()
returning b.xmax = 0 as new, b.media_type;

-- name: uploaded
insert into blob_upload (blob, channel, endpoint, size_bytes) values ($1, $2, $3, $4) on conflict do nothing;

-- name: write_piece
insert into blob_piece (blob, n, bytes) values ($1, $2, $3);

-- name: read_piece
select bytes from blob_piece where blob = $1 and n = $2;

-- name: remove_pieces
delete from blob_piece where blob = any ($1::bytea[]);

-- name: name
-- What may be named of these, by a message of this endpoint; it is not removed within a day from now.
update blob b set used_at = clock_timestamp()
where b.blob in (
    select k.blob from blob k
    where k.blob = any ($1::bytea[]) and ($4::boolean or exists (
        select from blob_upload u where u.blob = k.blob and u.channel = $2 and u.endpoint = $3
    ))
    order by k.blob for no key update
)
returning b.blob;

-- name: refer
insert into message_blob (blob, request_id)
select r.blob, r.request_id from unnest($1::bytea[], $2::uuid[]) as r (blob, request_id)
order by r.blob, r.request_id
on conflict do nothing;

-- name: made
insert into blob_made (blob, request_id, system_id) values ($1, $2, $3) on conflict do nothing;

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
returning b.blob, b.size_bytes, b.media_type;

-- name: find_all
select b.size_bytes, b.media_type from blob b where b.blob = $1;

-- name: find_of_endpoint
select b.size_bytes, b.media_type from blob b
where b.blob = $1 and (
    exists (select from blob_upload u where u.blob = b.blob and u.channel = $2 and u.endpoint = $3)
    or exists (
        select from message_blob r join message_inbox m using (request_id)
        where r.blob = b.blob and m.channel = $2 and m.endpoint = $3
    )
);

-- name: find_of_system
select b.size_bytes, b.media_type from blob b
where b.blob = $1 and exists (
    select from message_blob r join delivery d using (request_id) where r.blob = b.blob and d.system_id = $2
);

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
)
select blob from gone;
