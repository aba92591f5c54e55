-- Whether a worker still holds an item. Its lane stays locked against a rescue until the end of the transaction.
create or replace function holds_item(_owner bigint, _lane uuid, _epoch bigint, _seq bigint) returns boolean
language plpgsql as $$
begin
    perform from lane l
        where l.key = _lane and (l.owner, l.epoch, l.state, l.next_seq) is not distinct from (_owner, _epoch, 'running', _seq)
        for share;
    return found;
end $$;

-- Begin to transcribe a recording for an item, or say what is known of it; no row: the item is fenced.
-- What was heard in the same bytes, by the same model in the same language, is copied, whosever message had them. _may_ask: the
-- server can be asked now; asked: it is to be, for this item, whose row has the seconds of the day already. full: they would
-- exceed _day_seconds (0: no limit). Otherwise another item is asking, or this one has to wait.
create or replace function begin_transcription(_owner bigint, _lane uuid, _epoch bigint, _seq bigint, _request_id uuid, _n smallint,
                                               _blob bytea, _model text, _language text, _host text, _seconds integer,
                                               _may_ask boolean, _today date, _day_seconds bigint)
returns table (state text, tries smallint, text text, error text, waited_s double precision, asked boolean, is_full boolean)
language plpgsql as $$
#variable_conflict use_column
declare
    _known transcription;
    _own transcription;
    _asked boolean := false;
    _full boolean := false;
begin
    if not holds_item(_owner, _lane, _epoch, _seq) then return; end if;
    -- Of the same bytes one is asked for at a time; and the seconds of a day are added up one after the other.
    perform pg_advisory_xact_lock(hashtextextended('switchboard.transcribe ' || encode(_blob, 'hex') || _model || _language, 0));
    insert into transcription (request_id, n, blob, model, language, host, seconds)
        values (_request_id, _n, _blob, _model, _language, _host, _seconds)
        on conflict (request_id, n) do nothing;
    select * into strict _own from transcription t where t.request_id = _request_id and t.n = _n;
    if _own.state = 'open' then
        select * into _known from transcription t
            where t.blob = _blob and t.model = _model and t.language = _language and t.state = 'done' limit 1;
        if found then
            update transcription t set state = 'done', text = _known.text, spoken = _known.spoken, error = null, lane = null,
                                       ended_at = clock_timestamp()
                where t.request_id = _request_id and t.n = _n;
        elsif _may_ask and not exists (
            select from transcription t join lane l on l.key = t.lane
            where t.blob = _blob and t.model = _model and t.language = _language and t.lane <> _lane
              and l.state = 'running' and l.epoch = t.epoch and l.next_seq = t.seq
        ) then
            perform pg_advisory_xact_lock(hashtextextended('switchboard.transcribe', 0));
            _full := _day_seconds > 0 and _day_seconds < _seconds + (
                select coalesce(sum(t.seconds), 0) from transcription t
                where t.asked_on = _today and (t.request_id, t.n) <> (_request_id, _n));
            _asked := not _full;
            update transcription t set tries = t.tries + 1, asked_on = _today, lane = _lane, epoch = _epoch, seq = _seq
                where t.request_id = _request_id and t.n = _n and _asked;
        end if;
    end if;
    return query
        select t.state, t.tries, t.text, t.error, extract(epoch from clock_timestamp() - t.first_at)::double precision, _asked, _full
        from transcription t where t.request_id = _request_id and t.n = _n;
end $$;

-- The end of a try, or of all. _seconds: as the server has counted them; null: as it was assumed. What was never sent, or
-- failed, takes nothing from the day. False: the item is fenced, and nothing is written.
create or replace function end_transcription(_owner bigint, _lane uuid, _epoch bigint, _seq bigint, _request_id uuid, _n smallint,
                                             _state text, _text text, _spoken text, _error text, _seconds integer)
returns boolean
language plpgsql as $$
begin
    if not holds_item(_owner, _lane, _epoch, _seq) then return false; end if;
    update transcription t set state = _state, text = _text, spoken = _spoken, error = _error, seconds = coalesce(_seconds, t.seconds),
                               asked_on = case _state when 'done' then t.asked_on end, lane = null, epoch = null, seq = null,
                               ended_at = case when _state <> 'open' then clock_timestamp() end
        where t.request_id = _request_id and t.n = _n and t.state = 'open';
    return true;
end $$;
