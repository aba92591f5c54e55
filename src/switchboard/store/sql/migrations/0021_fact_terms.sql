-- What facts are found by. Row security would keep the server from using indexes of words; who may read what is decided by
-- `visible`, through which all that is found goes, so these tables have none.

-- Facts that the same readers may see. facts and words: how many of them are indexed, and their words.
create table fact_space (
    space_id integer primary key generated always as identity,
    key uuid not null unique,
    system_id text not null,
    space text not null,
    author text,
    handle uuid,
    conversation uuid,
    special boolean not null,
    facts integer not null default 0,
    words bigint not null default 0
);
create index fact_space_author on fact_space (system_id, author) where space = 'private';
create index fact_space_handle on fact_space (system_id, handle) where space = 'private';
create index fact_space_conversation on fact_space (system_id, conversation) where space = 'group';
create index fact_space_shared on fact_space (system_id) where space = 'shared';

-- The terms of a fact, see core/memory/terms.py. forms: each behind its space and a colon, so that an index entry leads to facts
-- of one space only; trigrams: without anything between them; words: how many; read_as: by which languages; safety: whether
-- somebody may come to harm if it is not known.
create table fact_terms (
    fact_id uuid primary key references fact,
    space_id integer not null references fact_space,
    words smallint not null,
    forms tsvector not null,
    trigrams text not null,
    safety boolean not null,
    read_as text not null,
    unique (fact_id, space_id)
) with (autovacuum_vacuum_scale_factor = 0.05);
create index fact_terms_forms on fact_terms using gin (forms);
create index fact_terms_space on fact_terms (space_id, fact_id);
create index fact_terms_safety on fact_terms (space_id, fact_id) where safety;

-- In how many facts of a space a term is. Sums of these are the statistics of a reader. trigrams: of a form, for words that are
-- written with a mistake.
create table fact_term_count (
    space_id integer not null references fact_space,
    kind text not null check (kind in ('form', 'trigram')),
    term text not null,
    facts integer not null,
    trigrams text[],
    primary key (space_id, kind, term)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
create index fact_term_count_trigrams on fact_term_count using gin (trigrams) where kind = 'form';


-- Models that make vectors. complete_at: since when it has had one of each fact that it may be given; before, nobody searches by it.
create table fact_model (
    model_id integer primary key generated always as identity,
    name text not null,
    revision text not null,
    dimensions integer not null,
    complete_at timestamptz,
    unique (name, revision, dimensions)
);

-- Vectors as little-endian floats, where there is no pgvector. Where there is, fact_halfvec has them, which prepare_vectors makes:
-- it is in no backup, as the server that reads one may know nothing of its type.
create table fact_vector (
    model_id integer not null references fact_model on delete cascade,
    space_id integer not null,
    fact_id uuid not null,
    vector bytea not null,
    primary key (model_id, space_id, fact_id),
    foreign key (fact_id, space_id) references fact_terms (fact_id, space_id) on update cascade on delete cascade
);
alter table fact_vector alter column vector set storage main;
create index fact_vector_fact on fact_vector (fact_id);

-- Facts that wait for a vector of a model.
create table fact_unembedded (
    model_id integer not null references fact_model on delete cascade,
    fact_id uuid not null references fact_terms on delete cascade,
    primary key (model_id, fact_id)
);
create index fact_unembedded_fact on fact_unembedded (fact_id);

-- How texts are read: the version of the rules, then the languages. Facts that were read in another way are read again.
create table fact_reading (
    only_one boolean primary key default true check (only_one),
    read_as text not null
);
insert into fact_reading (read_as) values ('1 de en');

-- Facts that wait to be read.
create table fact_unread (fact_id uuid primary key references fact on delete cascade);
select set_config('switchboard.facts', 'open', true);
insert into fact_unread select f.fact_id from fact f where f.undone_at is null;
select set_config('switchboard.facts', '', true);

-- It has an argument more.
drop function if exists visible(text, uuid, text, boolean, boolean, uuid);
