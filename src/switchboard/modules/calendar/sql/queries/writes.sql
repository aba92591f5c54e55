-- part: fields
w.write_id, w.step, w.collection, w.url, w.name, w.before, w.etag, w.after, w.now_etag, w.state, w.said, w.made_at

-- name: lease
-- No row: another step has it.
insert into lease as l (account, holder, step, until) values ($1, $2, $3, now() + $4::interval)
on conflict (account) do update set holder = excluded.holder, step = excluded.step, until = excluded.until
where l.step = $3 or l.until < now()
returning until;

-- name: renew
-- No row: another attempt has it by now.
update lease set until = now() + $3::interval where account = $1 and holder = $2 returning until;

-- name: release
delete from lease where account = $1 and holder = $2;

-- name: note
insert into write (account, write_id, step, place, collection, url, name, before, etag, after, said, made_by)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
on conflict do nothing;

-- name: of_step
select {{fields}} from write w where w.account = $1 and w.step = $2 order by w.place;

-- name: finish
-- No row: another attempt has the lease, and says what became of the write.
with held as (select l.account from lease l where l.account = $1 and l.holder = $5 for share)
update write w set state = $3, now_etag = $4, name = $6 from held
where w.account = held.account and w.write_id = $2
returning w.write_id;

-- name: find
-- Those whose id begins so.
select {{fields}} from write w
where w.account = $1 and replace(w.write_id::text, '-', '') like $2 || '%' order by w.made_at desc, w.place desc limit 2;

-- name: forget
delete from write where account = $1 and made_at < now() - interval '30 days';

-- name: erase_of_person
-- What they have written, and whatever was written into their own accounts.
delete from write w where w.account = $1
  and (w.made_by = any ($2::text[]) or exists (
      select from origin g where g.account = w.account and g.owner = any ($2::text[])));

-- name: erase
delete from write where account = $1;
