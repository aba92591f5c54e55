-- A range is looked up by starts near it, and by whatever is longer than that.

create index occurrence_long_at on occurrence (account, starts) where ends - starts > interval '2 days';
create index occurrence_long_on on occurrence (account, wall_start)
    where starts is null and wall_end - wall_start > interval '2 days';
create index object_unreadable on object (account, collection) where problem <> '';
