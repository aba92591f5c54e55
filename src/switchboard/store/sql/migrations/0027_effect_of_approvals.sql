-- What a call may do, as its tool declared it for these arguments when people were asked; null: a question, or asked by an older
-- release.
alter table approval
    add column effect text check (effect in ('idempotent', 'queryable', 'effectful')),
    add column risk text check (risk in ('low', 'medium', 'high'));
