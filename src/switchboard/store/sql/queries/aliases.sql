-- name: list
select a.name, a.alias, a.since from entity_alias a where a.system_id = $1 and a.until is null order by a.since, a.alias;

-- name: link
insert into entity_alias (system_id, name, alias, name_key, alias_key, linked_by) values ($1, $2, $3, $4, $5, $6)
on conflict (system_id, name_key, alias_key) where until is null do nothing
returning true;

-- name: unlink
update entity_alias set until = clock_timestamp() where system_id = $1 and name_key = $2 and alias_key = $3 and until is null
returning true;

-- part: of_person
-- Those that the persons $1 have given, and those of the name of person $2.
where a.linked_by = any ($1::text[]) or exists (
    select from person p where p.person_id = $2 and lower(p.name) in (lower(a.name), lower(a.alias)))

-- name: personal
select a.name, a.alias, a.since, a.system_id, a.until, a.linked_by from entity_alias a {{of_person}} order by a.since;

-- name: erase
delete from entity_alias a {{of_person}};
