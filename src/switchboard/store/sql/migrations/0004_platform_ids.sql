-- Replies are found by the platform's id alone, too: a mail may refer to nothing but one of ours.
drop index outbox_platform;
create index outbox_platform on outbox (platform_message_id, lane) where platform_message_id is not null;
drop index outbox_part_platform;
create index outbox_part_platform on outbox_part (platform_message_id, lane) where platform_message_id is not null;
