-- Turns belong to the programs that ask for them. delivery.program: the process of the program that asks for this turn, or
-- did. lane.program: the one that the lane waits for (pool 'program'), because it asks for the next turn there, or for one
-- behind it; see next_program.
alter table delivery add column program bigint;
alter table lane add column program bigint;
create index lane_program on lane (program) where program is not null;
