-- The row that tells a pause of a model also tells how much it can read, as its refusals have shown, and until when that counts.
alter table model_cooldown
    add column context integer,
    add column context_until timestamptz;
-- It returns more columns now.
drop function if exists take_slot_of_model(text, text, integer, smallint, uuid, uuid, interval, text, boolean);
