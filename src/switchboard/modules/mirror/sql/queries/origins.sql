-- name: find
-- With the collections that are somebody else's on the server.
select url, login, owner,
       array(select collection from collection c where c.account = $1 and c.shared order by collection) as shared
from origin where account = $1;

-- name: note
insert into origin (account, url, login, owner) values ($1, $2, $3, $4)
on conflict (account) do update set url = excluded.url, login = excluded.login, owner = excluded.owner;

-- name: erase
delete from collection where account = $1;
