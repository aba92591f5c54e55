-- name: append
insert into audit (audit_id, actor, action, detail) values ($1, $2, $3, $4);

-- name: list
select audit_id, at, actor, action, detail from audit order by audit_id desc limit $1;
