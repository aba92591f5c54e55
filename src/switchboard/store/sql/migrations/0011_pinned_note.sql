-- Whether a note about a rule is pinned for its readers.
alter table rule add column pinned_note boolean not null default false;
