-- part: shown
f.fact_id, f.author, f.subject,
       case f.space when 'private' then 'private:' || f.author
                    when 'group' then 'group:' || coalesce(c.name, f.conversation::text) else 'shared' end as space,
       f.text, f.created_at

-- name: visible
select {{shown}}
from visible($1, conversation_key($2), $3, $4, $5) f left join conversation c on c.conversation = f.conversation
order by f.fact_id desc limit $6;

-- name: share
select share_fact($1, $2, $3, $4, $5);

-- name: save
select save_facts($1, $2);

-- name: learn
-- The same for butler $1 in conversation $2, which need not have begun.
select save_facts(enter_lane($1, $2), $3);

-- name: forget
select forget_fact($1);

-- name: forget_again
select forget_again();

-- name: forgotten
select g.fact_id, g.mark from forgotten g order by g.fact_id;

-- name: list
select f.system_id, {{shown}}
from facts_for_operator($1, $2, $3, $4) f left join conversation c on c.conversation = f.conversation
order by f.fact_id desc;

-- name: get
select f.system_id, {{shown}}
from fact_for_operator($1) f left join conversation c on c.conversation = f.conversation;

-- name: sources
-- The entries that a fact cites; the text of those that are still there.
select e.request_id, s.position, e.text, e.created_at
from fact_source s left join entry e on e.lane = s.lane and e.position = s.position
where s.fact_id = $1 order by s.lane, s.position;
