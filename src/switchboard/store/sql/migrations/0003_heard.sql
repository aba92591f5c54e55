-- How many messages of a group its butlers are told that were not said to them, as the file of the account says.
alter table connector_account add column heard integer not null default 0;
