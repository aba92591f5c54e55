-- The handle that certainly said an entry, or to whom it was said, as facts have it: who is linked with it searches it, too.
-- Entries of before have none, and are found under the handle of their author alone.
alter table entry add column handle uuid;
