-- Turns belong to the programs that ask for them. delivery.program: the process of the program that asks for this turn, or
-- did. lane.program: the one that the lane waits for (pool 'program'), because it asks for the next turn there, or for one
-- behind it; see next_program.
alter table delivery add column program bigint;
alter table lane add column program bigint;
create index lane_program on lane (program) where program is not null;

-- Replies to programs that workers of older releases left to connectors, of which none serves such an endpoint.
with returned as (
    update outbox o set state = 'sent', settled_at = clock_timestamp()
        where o.state = 'pending' and starts_with(o.endpoint, 'embedded:')
        returning o.lane
)
update lane l set state = 'idle', done_seq = l.last_seq, attempts = 0, delayed = false
    where l.kind = 'send' and l.key in (select r.lane from returned r);
