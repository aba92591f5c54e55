-- Whose an account is stands in `origin`.

alter table span drop column owner;
