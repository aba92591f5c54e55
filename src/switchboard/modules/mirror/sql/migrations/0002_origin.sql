-- Of which account on which server a mirror is, and whose that account is: `person:ann` or `group:family`.
--
-- Law: what is in the mirror of an account is of this origin. A name in the settings may be given to another account;
-- then the next sync erases all that is kept under it, and until then nothing of it is told.

create table origin (
    account text primary key,
    url text not null,
    login text not null,
    owner text not null
);

-- Those of somebody else on the server, who shares them with the user of the account.
alter table collection add column shared boolean not null default false;

-- Of what was read before, nobody has said whose it is: it is read again.
delete from collection;
