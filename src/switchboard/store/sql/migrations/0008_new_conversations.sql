-- Where what is said in a conversation begins anew: no butler is told what was said before the message `since` any more.
create table conversation_start (
    conversation uuid primary key,
    since uuid not null
);
-- The beginning that was in force when its entries were read; with another one, it is not for this conversation.
alter table summary add column since uuid not null default '00000000-0000-0000-0000-000000000000';
-- Groups are listed by their titles; until now they had the name of whoever wrote there last.
update contact set display_name = null where scope = 'group';
