"""Which statements a module may run: one each, on its own tables, with functions that only compute.

The role of a module keeps it from our tables, but not from functions that everybody may call: some end the role
(`set_config`), speak in our name (`pg_notify`), or run text as SQL (`query_to_xml`). So functions are allowed by name.
Called by `stores.py` and `migrations.py` with the text of files; nothing is run here. What is not understood is
refused. Next: `stores.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from msgspec import Struct

_TOKEN: Final = re.compile(
    r"""
      (?P<blank> [ \t\n\r\f\v]+ | --[^\n\r]* )
    | (?P<text> '(?:[^']|'')*' )
    | (?P<quoted> "(?:[^"]|"")*" )
    | (?P<word> [A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_$\u0080-\U0010ffff]* )
    | (?P<parameter> \$[0-9]+ )
    | (?P<number> [0-9]+ )
    | (?P<sign> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def _words_in(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BEGINNINGS: Final = _words_in("select insert update delete merge with")
_NAMES_BEFORE: Final = _words_in("into as with recursive")
"""After these, a name before a parenthesis is that of a table or a list of columns."""
_KEYWORDS: Final = _words_in("""
    all and any array as between by case conflict cross cube distinct else except exists fetch filter first from
    full group having ilike in inner insert intersect is join lateral left like limit materialized next not offset on
    only or over partition recursive returning right rollup row rows select sets similar some then union update using
    values when where window with set end
    bit char character decimal interval numeric time timestamp timestamptz varchar""")
"""They stand before parentheses, and call nothing."""
_FUNCTIONS: Final = _words_in("""
    abs age array_agg array_append array_cat array_length array_position array_positions array_prepend array_remove
    array_replace array_to_string avg bit_and bit_or bit_xor bool_and bool_or btrim cardinality cast ceil ceiling
    char_length clock_timestamp coalesce concat concat_ws count cume_dist date_bin date_part date_trunc decode
    dense_rank div encode every exp extract first_value floor format gen_random_uuid generate_series greatest
    initcap isempty isfinite json_agg json_array_elements json_array_elements_text json_array_length
    json_build_array json_build_object json_each json_each_text json_extract_path json_extract_path_text
    json_object json_object_agg json_object_keys json_populate_record json_populate_recordset json_strip_nulls
    json_to_record json_to_recordset json_typeof jsonb_agg jsonb_array_elements jsonb_array_elements_text
    jsonb_array_length jsonb_build_array jsonb_build_object jsonb_each jsonb_each_text jsonb_extract_path
    jsonb_extract_path_text jsonb_insert jsonb_object jsonb_object_agg jsonb_object_keys jsonb_path_exists
    jsonb_path_query jsonb_path_query_array jsonb_path_query_first jsonb_populate_record jsonb_populate_recordset
    jsonb_set jsonb_strip_nulls jsonb_to_record jsonb_to_recordset jsonb_typeof justify_days justify_hours
    justify_interval lag last_value lead least left length ln localtimestamp log lower lower_inc lower_inf lpad ltrim
    make_date make_interval make_time make_timestamp make_timestamptz max md5 min mod mode multirange normalize now
    nth_value ntile nullif num_nonnulls num_nulls numnode octet_length overlay percent_rank percentile_cont
    percentile_disc phraseto_tsquery plainto_tsquery position power random range_agg range_merge rank regexp_count
    regexp_instr regexp_like regexp_match regexp_matches regexp_replace regexp_split_to_array
    regexp_split_to_table regexp_substr replace reverse right round row_number row_to_json rpad rtrim setweight
    sha256 sign split_part sqrt starts_with statement_timestamp stddev string_agg string_to_array string_to_table
    strip strpos substr substring sum to_char to_date to_json to_jsonb to_number to_timestamp to_tsquery to_tsvector
    translate trim trim_array trunc ts_headline ts_rank ts_rank_cd tsrange tstzrange tsvector_to_array daterange
    int4range int8range numrange unistr unnest upper upper_inc upper_inf variance websearch_to_tsquery
    width_bucket""")
_WORDS_OF_A_CAGE: Final = _words_in("execute reset role security session authorization copy")
"""What functions of a module need for nothing, and could leave their role by."""
_ENDS_OF_A_TRANSACTION: Final = _words_in("commit rollback abort reset")
_MADE_FUNCTION: Final = re.compile(r"create\s+(?:or\s+replace\s+)?function\s+(\w+)", re.IGNORECASE)


class SqlBounds(Struct, frozen=True):
    """What the SQL of a module may name: `schema` of all schemas, and besides what only computes, its `functions`."""

    schema: str
    schemas: frozenset[str]
    functions: frozenset[str] = frozenset()


class _Token(Struct, frozen=True):
    kind: str
    text: str
    start: int

    @property
    def name(self) -> str:
        """As PostgreSQL reads it, if it is a name."""
        return self.text[1:-1].replace('""', '"') if self.kind == "quoted" else self.text.lower()

    @property
    def is_name(self) -> bool:
        return self.kind in ("word", "quoted")


def made_functions(sql: str) -> frozenset[str]:
    """The names of the functions that the text of a module's `functions` makes."""
    return frozenset(name.lower() for name in _MADE_FUNCTION.findall(sql))


def refusal_of_query(sql: str, bounds: SqlBounds) -> str | None:
    """Why a module may not run this statement; None: it may."""
    tokens = _tokens_of(sql)
    if not tokens or tokens[0].name not in _BEGINNINGS:
        return f"a query begins with one of {', '.join(sorted(_BEGINNINGS))}"
    if "$1" not in {token.text for token in tokens}:
        return "a query is for one account, which is $1: no row may be read or changed without it"
    if any(token.text == ";" for token in tokens):
        return "a query is one statement"
    return next(_objections_to(sql, tokens, bounds), None)


def refusal_of_function(sql: str, bounds: SqlBounds) -> str | None:
    """Why a module may not make these functions; None: it may. Bodies are read as what they are, SQL."""
    tokens = _tokens_of(re.sub(r"\$\w*\$", " ", sql))
    for token in tokens:
        if token.name in _WORDS_OF_A_CAGE:
            return f"a function of a module has no {token.name!r}"
    return next(_objections_to(sql, tokens, bounds), None)


def refusal_of_migration(sql: str, bounds: SqlBounds) -> str | None:
    """Why a migration may not run; None: it may. It is DDL, so what is looked at is only whose."""
    for token, after in pairwise([*_tokens_of(sql), _Token("sign", "", len(sql))]):
        if token.is_name and after.text == "." and _is_foreign(token.name, bounds):
            return f"{token.text} is not its own schema"
        if token.kind == "word" and token.name in _ENDS_OF_A_TRANSACTION:
            return f"it is a part of one transaction, without {token.text!r}"
    return None


def _tokens_of(sql: str) -> list[_Token]:
    found = (_Token(str(match.lastgroup), match[0], match.start()) for match in _TOKEN.finditer(sql))
    return [token for token in found if token.kind != "blank"]


def _objections_to(sql: str, tokens: list[_Token], bounds: SqlBounds) -> Iterator[str]:
    yield from _unreadable_forms(sql, tokens)
    none = _Token("sign", "", -1)
    for before, token, after in zip([none, *tokens], tokens, [*tokens[1:], none], strict=False):
        if not token.is_name:
            continue
        if token.name.startswith("pg_") or (after.text == "." and _is_foreign(token.name, bounds)):
            yield f"{token.text} is not of the module's own schema {bounds.schema}"
        elif after.text == "(" and before.name not in _NAMES_BEFORE and not _may_call(token, bounds):
            yield f"the function {token.text} is not among those that a module may call"


def _unreadable_forms(sql: str, tokens: list[_Token]) -> Iterator[str]:
    """Forms whose end one finds only as PostgreSQL does."""
    if "/*" in sql:
        yield "comments begin with --"
    for before, token in pairwise(tokens):
        prefixed = before.kind == "word" or before.text == "&"
        if prefixed and token.kind in ("text", "quoted") and before.start + len(before.text) == token.start:
            yield f"a text stands alone, without {before.text} before it"
    for token in tokens:
        if token.kind == "sign" and token.text in ("'", '"', "$", "\\"):
            yield f"the sign {token.text} at {token.start} has no end, or does not belong there"


def _is_foreign(name: str, bounds: SqlBounds) -> bool:
    return name != bounds.schema and (name in bounds.schemas or name in ("public", "information_schema"))


def _may_call(token: _Token, bounds: SqlBounds) -> bool:
    known = token.kind == "word" and token.name in _KEYWORDS
    return known or token.name in _FUNCTIONS or token.name in bounds.functions
