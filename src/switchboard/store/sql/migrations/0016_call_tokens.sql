-- Whom an agent's token acts for when it calls tools outside turns: the id of a person; null: nobody in particular.
-- It is revoked with the person.
alter table token add column person text;
