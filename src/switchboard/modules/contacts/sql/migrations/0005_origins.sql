-- Whose an account is stands in `origin`.

drop table owner;
