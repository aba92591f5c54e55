-- name: register
insert into worker (host, pid, version, ttl, has_lock) values ($1, $2, $3, $4, $5) returning worker_id;

-- name: hold_lock
select pg_advisory_lock($1, $2);

-- name: beat
update worker set beat = clock_timestamp() where worker_id = $1;

-- name: rescue
select rescue_lanes($1);

-- name: release
select release_worker($1);

-- name: claim
select key, kind, tier, seq, epoch, attempts from claim_lanes($1, $2, null, $3);

-- name: claim_both
select key, kind, tier, seq, epoch, attempts from claim_lanes($1, $3, null, $4)
union all
select key, kind, tier, seq, epoch, attempts from claim_lanes($2, $3, null, $5);

-- name: load
select i.lane, i.seq, x.request_id, x.conversation, x.system_id, x.team_id, x.segment, x.text, m.envelope::text as envelope,
       m.received_at, x.dead_letter, exists (select from step s where s.lane = i.lane and s.seq = i.seq) as resumed
from unnest($1::text[], $2::bigint[]) with ordinality as i (lane, seq, ord)
join lateral (
    select d.request_id, d.conversation, d.system_id, d.team_id, d.segment, d.text, null::jsonb as dead_letter
    from delivery d where d.lane = i.lane and d.seq = i.seq
    union all
    select n.request_id, n.conversation, n.system_id, n.team_id, 0,
           part_of(x.request_id, x.conversation, x.n, coalesce(h.team_id, n.team_id)),
           jsonb_build_object('dead_letter_id', n.dead_letter_id, 'team_id', n.team_id, 'category', x.category,
                              'reason', x.reason, 'system_id', x.system_id)
           || case when n.lane like 'notice:%:digest' then (
                  select jsonb_build_object(
                      'letters', n.letters,
                      'categories', (
                          select jsonb_object_agg(c.category, c.letters) from (
                              select y.category, count(*) as letters from dead_letter y
                              where y.notice_lane = n.lane and y.notice_seq = n.seq group by y.category
                          ) c
                      ),
                      'digest', (
                          select jsonb_agg(to_jsonb(y) order by y.dead_letter_id) from (
                              select y.dead_letter_id, y.request_id, y.team_id, y.category, left(y.reason, 200) as reason,
                                     y.system_id,
                                     left(coalesce(part_of(y.request_id, y.conversation, y.n, coalesce(h.team_id, n.team_id)),
                                                   y.payload #>> '{payload,normalized_text}'), 200) as text
                              from dead_letter y where y.notice_lane = n.lane and y.notice_seq = n.seq
                              order by y.dead_letter_id limit 200
                          ) y
                      ))
              ) else '{}' end
    from notice n join dead_letter x on x.dead_letter_id = n.dead_letter_id and x.conversation = n.conversation
    left join member h on h.system_id = n.system_id
    where n.lane = i.lane and n.seq = i.seq
) x on true
join message_inbox m on m.request_id = x.request_id and m.conversation = x.conversation
order by i.ord;

-- name: steps
select n, name, state, idempotency_key, result from step where lane = $1 and seq = $2 order by n;

-- name: write_step
select write_step($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: retry
select retry_turn($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: settle
select lane, ok, next_seq from settle_turns(
    $1, $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[], $9::timestamptz[],
    $10::boolean[], $11::boolean[], $12::uuid[], $13::text[], $14::text[], $15::uuid[], $16::text[], $17::text[], $18::text[]);

-- name: list
select key as lane, kind, pool, state, last_seq - done_seq as waiting, attempts, owner, epoch, ready_at, lease_until
from lane where state = any ($1) order by ready_at limit 200;

-- name: resume
update lane set state = case when last_seq > done_seq then 'ready' else 'idle' end, ready_at = clock_timestamp()
where key = $1 and state = 'paused';
