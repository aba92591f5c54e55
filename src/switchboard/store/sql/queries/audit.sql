-- name: append
insert into audit (audit_id, actor, action, detail) values ($1, $2, $3, $4);

-- name: list
select audit_id, at, actor, action, detail from audit
where ($2::text is null or action = $2) and ($3::uuid is null or audit_id < $3)
order by audit_id desc limit $1;
