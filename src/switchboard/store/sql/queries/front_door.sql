-- name: standing
-- Whether the contact $1 was let in, and whether the account that tokens were made for is out of service: none of them is valid,
-- and no process of it reports itself.
select (select c.state from contact c where c.contact_id = $1::uuid) as contact,
       exists (select from token t where t.channel = $2 and t.endpoint = $3)
       and not exists (
           select from token t where t.channel = $2 and t.endpoint = $3 and t.revoked_at is null
              and (t.expires_at is null or t.expires_at > clock_timestamp()))
       and not exists (select from connector c where c.channel = $2 and c.endpoint = $3) as gone;
