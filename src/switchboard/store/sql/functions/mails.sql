-- Put a mail into the outbox, whose message was stored just before in the same transaction. The caller holds the lock of its key.
-- _conversation: that of its answers. _files: as outbox.files.
create or replace function queue_mail(
    _key text, _request_id uuid, _outbox_id uuid, _channel text, _endpoint text, _system_id text, _message_id text,
    _recipients uuid[], _origin text, _conversation uuid, _recipient text, _reply_to text, _text text, _files text, _pool text
) returns void
language plpgsql as $$
declare
    _lane uuid := lane_key('send', null, _conversation);
    _seq bigint[];
begin
    insert into mail (key, request_id, outbox_id, channel, endpoint, system_id, message_id, recipients, origin)
        values (_key, _request_id, _outbox_id, _channel, _endpoint, _system_id, _message_id, _recipients, _origin::json);
    perform lock_lanes(array[_lane], array['send'], array[null::text], array[_conversation], array[_pool]);
    _seq := enqueue_items(array[_lane], array[flow_of(_request_id)], null, array[_pool]);
    insert into outbox (lane, seq, outbox_id, request_id, system_id, channel, endpoint, recipient, reply_to, text, files, state, created_at)
        values (_lane, _seq[1], _outbox_id, _request_id, _system_id, _channel, _endpoint, _recipient, _reply_to, _text, _files::json,
                'pending', clock_timestamp());
    insert into outbox_blob (blob, outbox_id)
        select decode(f ->> 'sha256', 'hex'), _outbox_id from json_array_elements(_files::json) f on conflict do nothing;
end $$;

-- Whether a reply is a mail that a butler has written, of whose every failure people are told.
create or replace function is_mail(_one outbox) returns boolean
language sql stable as $$
    select exists (select from mail m where m.outbox_id = _one.outbox_id);
$$;
