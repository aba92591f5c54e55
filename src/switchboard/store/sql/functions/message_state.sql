-- What of a message came to a team by decision n: null is the whole, and so it is for nobody's team.
create or replace function part_of(_request_id uuid, _n smallint, _team text) returns text
language sql stable as $$
    select coalesce(d.parts ->> _team, d.parts ->> '') from decision d
    where _team is not null and d.request_id = _request_id and d.n = _n;
$$;

-- What became of a message as a whole: in flight while anything is, then the best that happened to it.
create or replace function message_state(_request_id uuid) returns text
language sql stable as $$
    select case
        when bool_or(s.state = 'pending') then 'in_flight'
        when bool_or(s.state = 'answered') then 'answered'
        when bool_or(s.state = 'declined') then 'declined'
        when bool_or(s.state = 'dead') then 'dead'
        when bool_or(s.state = 'held') then 'held'
        when bool_or(s.state = 'cancelled') then 'cancelled'
        when exists (select from decision d where d.request_id = _request_id and d.branches = 0) then 'history'
        else 'missing' end
    from (
        -- what was handed on is in the hands of those who got it
        select case when d.error_class = 'handed_on' then 'cancelled' else d.state end from delivery d where d.request_id = _request_id
        union all
        select 'dead' from dead_letter x where x.request_id = _request_id and x.lane is null
        union all
        select 'pending' from routing r where r.request_id = _request_id and r.state = 'pending'
        union all
        select case when h.state = 'held' then 'held' else 'cancelled' end from held h where h.request_id = _request_id
    ) s;
$$;

-- The message of an item, whatever the kind of its lane.
create or replace function request_of(_lane uuid, _seq bigint) returns uuid
language sql stable as $$
    select coalesce(
        (select d.request_id from delivery d where d.lane = _lane and d.seq = _seq),
        (select r.request_id from routing r where r.lane = _lane and r.seq = _seq),
        (select n.request_id from notice n where n.lane = _lane and n.seq = _seq),
        (select o.request_id from outbox o where o.lane = _lane and o.seq = _seq));
$$;
