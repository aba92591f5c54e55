-- What a platform calls an event that it pushes over a socket (SHA-256): one that is pushed again waits only once.
alter table posted_event add column mark bytea;
create unique index posted_event_mark on posted_event (channel, endpoint, mark) where mark is not null;
