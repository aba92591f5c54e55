"""`/docs`: the OpenAPI as one plain page that needs no internet, and that can try each call with a pasted token.

`pages.py` serves it, and permits only the script below. The token never leaves the field that it was pasted into. In:
the OpenAPI document; out: HTML. Next: a reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import Final

import msgspec

from switchboard.domain.json_values import JsonMapping

_CODE: Final = re.compile(r"`([^`]+)`")
STYLE: Final = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}
h2{margin-top:2.5rem;border-bottom:1px solid #ccc}code,pre{font:14px/1.5 ui-monospace,monospace}
details{border:1px solid #ccc;border-radius:6px;margin:.5rem 0;padding:.4rem .8rem}summary{cursor:pointer}
summary b{display:inline-block;min-width:4.5rem}table{border-collapse:collapse;margin:.5rem 0}
td,th{text-align:left;vertical-align:top;padding:.15rem 1rem .15rem 0}
pre{overflow:auto;background:#f4f4f4;padding:.6rem}pre:empty{display:none}code{overflow-wrap:anywhere}
@media(prefers-color-scheme:dark){
body{color:#e6e6e6;background:#161616}pre{background:#242424}h2,details{border-color:#444}
input,textarea,button{color:inherit;background:#242424}}
label{display:block}input,textarea{font:14px/1.5 ui-monospace,monospace;width:100%;box-sizing:border-box}
"""
SCRIPT: Final = """
document.addEventListener("click", async event => {
  const form = event.target.closest("[data-path]");
  if (event.target.tagName !== "BUTTON" || !form) return;
  const shown = form.querySelector("pre"), body = form.querySelector("textarea");
  const headers = {}, query = new URLSearchParams();
  let path = form.dataset.path;
  for (const field of form.querySelectorAll("input")) {
    if (field.dataset.in === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(field.value));
    else if (field.value && field.dataset.in === "query") query.set(field.name, field.value);
    else if (field.value) headers[field.name] = field.value;
  }
  const token = document.getElementById("token").value.trim();
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = body.dataset.type;
  const request = {method: form.dataset.method, headers, body: body ? body.value : undefined, credentials: "omit"};
  shown.textContent = "…";
  try {
    const answer = await fetch(query.size ? `${path}?${query}` : path, request), text = await answer.text();
    let told = text;
    try { told = JSON.stringify(JSON.parse(text), null, 2); } catch {}
    shown.textContent = `${answer.status} ${answer.statusText}\n\n${told}`;
  } catch (error) {
    shown.textContent = `no answer: ${error.message}`;
  }
});
function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  if (target) target.open = true;
}
addEventListener("hashchange", unfold);
unfold();
"""


def docs_page(openapi: JsonMapping) -> str:
    """The page for an OpenAPI document."""
    title = escape(f"{openapi['info']['title']} {openapi['info']['version']}")
    body = "".join(_render_body(openapi))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"<body><h1>{title}</h1><p>{escape(openapi['info'].get('description', ''))}</p>"
        f"<p>For machines: {', '.join(_link_documents(openapi))}</p>"
        "<p><label>Token, to try calls with; it stays in this field "
        '<input id="token" type="password" autocomplete="off" placeholder="sb_o_…"></label></p>'
        f"{body}<script>{SCRIPT}</script></body></html>"
    )


def _link_documents(openapi: JsonMapping) -> Iterator[str]:
    for path in ("/openapi.json", *openapi["paths"]):
        if path.endswith(".json"):
            yield f'<a href="{path}">{path.rpartition("/")[2]}</a>'


def _render_body(openapi: JsonMapping) -> Iterator[str]:
    tags: dict[str, list[str]] = {}
    for path, operations in openapi["paths"].items():
        for method, operation in operations.items():
            tags.setdefault(operation.get("tags", ["other"])[0], []).append(_render_operation(method, path, operation))
    said = {tag["name"]: tag["description"] for tag in openapi.get("tags", ())}
    for tag in sorted(tags, key=[*said, *tags].index):
        yield f"<h2>{escape(tag)}</h2><p>{_render_prose(said.get(tag, ''))}</p>{''.join(tags[tag])}"
    yield "<h2>Shapes</h2>"
    for name, schema in openapi.get("components", {}).get("schemas", {}).items():
        yield _render_shape(name, schema)


def _render_operation(method: str, path: str, operation: JsonMapping) -> str:
    head = f"<b>{method.upper()}</b> <code>{escape(path)}</code> {escape(operation.get('summary', ''))}"
    parameters = "".join(
        _render_row(p["name"], p["in"], p["schema"], p.get("description", "")) for p in _parameters_of(operation)
    )
    body = operation.get("requestBody", {}).get("content", {})
    taken = "".join(f"<p>Body: <code>{escape(kind)}</code> {_kind_of(c['schema'])}</p>" for kind, c in body.items())
    answers = "".join(_render_answer(code, response) for code, response in operation["responses"].items())
    return (
        f"<details><summary>{head}</summary><p>{_render_prose(operation.get('description', ''))}</p>"
        f"{_render_table(parameters)}{taken}{_render_table(answers)}{_render_form(method, path, operation)}</details>"
    )


def _render_form(method: str, path: str, operation: JsonMapping) -> str:
    """What the script needs for this call: a field per parameter, the example as the body, and a button."""
    fields = "".join(_render_field(parameter) for parameter in _parameters_of(operation))
    content = operation.get("requestBody", {}).get("content", {})
    bodies = [(kind, one["example"]) for kind, one in content.items() if "example" in one][:1]
    area = "".join(
        f'<textarea rows="8" data-type="{kind}">{escape(_example_text(example))}</textarea>' for kind, example in bodies
    )
    return (
        f'<div data-method="{method.upper()}" data-path="{escape(path)}"><h4>Try it</h4>{fields}{area}'
        "<p><button>Send</button></p><pre></pre></div>"
    )


def _render_field(parameter: JsonMapping) -> str:
    name, example = escape(parameter["name"]), escape(str(parameter.get("example", "")))
    return f'<label>{name} <input name="{name}" data-in="{escape(parameter["in"])}" value="{example}"></label>'


def _example_text(example: object) -> str:
    return example if isinstance(example, str) else msgspec.json.format(msgspec.json.encode(example), indent=2).decode()


def _parameters_of(operation: JsonMapping) -> list[JsonMapping]:
    return list(operation.get("parameters", []))


def _render_row(name: str, place: str, schema: JsonMapping, text: str) -> str:
    cells = (f"<code>{escape(name)}</code>", escape(place), _kind_of(schema), _render_prose(text))
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _render_answer(code: str, response: JsonMapping) -> str:
    kinds = ", ".join(_kind_of(content.get("schema", {})) for content in response.get("content", {}).values())
    return f"<tr><td>{escape(code)}</td><td>{_render_prose(response.get('description', ''))}</td><td>{kinds}</td></tr>"


def _render_prose(text: str) -> str:
    """A description as HTML, with `code` marked as such."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def _render_table(rows: str) -> str:
    return f"<table>{rows}</table>" if rows else ""


def _kind_of(schema: JsonMapping) -> str:
    """A schema in a few words, with links to shapes."""
    if "$ref" in schema:
        name = escape(str(schema["$ref"]).rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(_kind_of(one) for one in schema[several])
    if "enum" in schema:
        return " | ".join(escape(repr(value)) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind_of(schema.get('items', {}))}"
    return escape(str(schema.get("const", schema.get("format", schema.get("type", "any")))))


def _render_shape(name: str, schema: JsonMapping) -> str:
    required = set(schema.get("required", []))
    rows = "".join(
        _render_row(key, "required" if key in required else "", value, value.get("description", ""))
        for key, value in schema.get("properties", {}).items()
    )
    return (
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        f"<p>{_render_prose(schema.get('description', ''))}</p>{_render_table(rows)}</details>"
    )
