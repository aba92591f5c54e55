-- Whose words the entries of a history are. own: the author's own words in the text; null: all of them are. name: how the
-- author was called then. told: whether the text has others' words, or was written after others' words were read. Of the
-- entries and summaries of older releases nobody has noted it: told is null, and the text is read when it is needed.
alter table entry
    add column own text,
    add column name text not null default '',
    add column told boolean;
alter table summary add column told boolean;
