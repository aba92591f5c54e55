-- Whose accounts these are, for whoever hands out or erases what is kept of a person.

create table owner (
    account text primary key,
    owner text not null
);
