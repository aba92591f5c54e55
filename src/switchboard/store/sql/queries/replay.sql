-- name: cases
-- Text, not jsonb: it is decoded at once into what the rules read.
select request_id, facts::text,
       case when trail #>> '{0,reason}' in ('pin', 'pin_unreachable') then trail #>> '{0,targets,0,system_id}' end
from decision
where request_id >= $1 and request_id < $2 and n = 1 and facts is not null and branches > 0
  and trail #>> '{0,reason}' is distinct from 'command'  -- no rule decides them
order by request_id desc limit $3;

-- name: count
select count(*) from (
    select from decision where request_id >= $1 and n = 1 order by request_id desc limit $2
) as found;
