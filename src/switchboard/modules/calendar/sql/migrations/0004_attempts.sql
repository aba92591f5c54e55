-- The lease of an account is that of one attempt of a step, and what a step could not complete is taken back.
--
-- Laws:
--   * One attempt at a time writes. Another one of the same step takes the lease over at once, as after a kill; the
--     former one then writes nothing more, and what it says of a write does not count.
--   * `undoing`: the write is being taken back. Whoever repeats the step takes it back.

alter table lease add column step uuid;
alter table write drop constraint write_state_check;
alter table write add constraint write_state_check
    check (state in ('started', 'done', 'failed', 'undoing', 'undone'));
