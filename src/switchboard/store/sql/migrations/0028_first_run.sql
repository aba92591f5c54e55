-- What was done of the first run, by the cards of the page Welcome; `welcome` is the whole page. A card that is not here is open.
create table first_run (
    card text primary key check (card in ('welcome', 'say', 'model', 'channel', 'keep')),
    state text not null check (state in ('done', 'skipped')),
    at timestamptz not null default clock_timestamp()
);
