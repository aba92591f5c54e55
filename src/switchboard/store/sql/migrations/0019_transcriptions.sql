-- What a machine heard in attachment n (from 0) of a message, or why it is not known. A row is made when the first reader of the
-- message wants to know it, and goes with the words of the message.
-- state: 'open': it is still to be tried (tries: how often it was); 'done': text is what was said, perhaps nothing; 'failed'.
-- lane, epoch, seq: the item for which the server is being asked, null: for none. asked_on: the day whose budget has the seconds,
-- null: nothing was sent, as where the same bytes were transcribed for another message.
create table transcription (
    request_id uuid not null,
    n smallint not null,
    blob bytea not null,
    model text not null,
    language text not null,
    state text not null default 'open' check (state in ('open', 'done', 'failed')),
    tries smallint not null default 0,
    text text not null default '',
    spoken text not null default '',
    error text,
    host text not null,
    seconds integer not null,
    asked_on date,
    lane uuid,
    epoch bigint,
    seq bigint,
    first_at timestamptz not null default clock_timestamp(),
    ended_at timestamptz,
    primary key (request_id, n)
);
create index transcription_bytes on transcription (blob, model, language);
create index transcription_day on transcription (asked_on) where asked_on is not null;
