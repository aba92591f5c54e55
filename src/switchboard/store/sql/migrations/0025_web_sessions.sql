-- Who is signed in on the page. A session stands for the token that it was opened with, and ends with it. hash: the sha256 of
-- what the browser's cookie holds; label: the browser, as it names itself.
create table web_session (
    session_id uuid primary key,
    hash bytea not null unique,
    token_id uuid not null references token (token_id),
    label text not null,
    created_at timestamptz not null default clock_timestamp(),
    used_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null
);

-- Links that sign in once, as a token. hash: the sha256 of what is in the link.
create table web_link (
    hash bytea primary key,
    token_id uuid not null references token (token_id),
    expires_at timestamptz not null
);

-- Strangers who wait for an operator, of whom the page shows how many there are.
create index contact_stranger on contact (first_seen_at) where state = 'stranger' and scope <> 'late';
