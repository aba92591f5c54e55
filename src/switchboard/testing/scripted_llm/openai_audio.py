"""OpenAI transcriptions: `POST /v1/audio/transcriptions`, with the refusals of the real one.

Called by `endpoints.py` through `dialect.Speaker`. In: the fields of a form, of whose file only name, size and hash are
recorded; out: the text of the reply as what was said, in the form that was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from starlette.datastructures import UploadFile
from starlette.requests import Request as HttpRequest

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.testing.scripted_llm.answer import Answer, Json
from switchboard.testing.scripted_llm.dialect import BadRequest, wanted
from switchboard.testing.scripted_llm.openai_chat import OpenAi
from switchboard.testing.scripted_llm.request import Conversation, Dialect, Said

_MOST_BYTES: Final = 26_214_400
_SUFFIXES: Final = ("flac", "m4a", "mp3", "mp4", "mpeg", "mpga", "oga", "ogg", "wav", "webm")
_SIGNS: Final[dict[str, tuple[int, bytes]]] = {
    "flac": (0, b"fLaC"),
    "m4a": (4, b"ftyp"),
    "mp4": (4, b"ftyp"),
    "oga": (0, b"OggS"),
    "ogg": (0, b"OggS"),
    "wav": (8, b"WAVE"),
    "webm": (0, b"\x1aE\xdf\xa3"),
}
_FORMATS: Final = ("json", "verbose_json")
_NEWER: Final = "gpt-4o"
"""Models whose names begin like this take no `.oga`, and answer with nothing but the text."""
_SURE: Final = {"avg_logprob": -0.2, "compression_ratio": 1.1, "no_speech_prob": 0.01}
_NOBODY_SPOKE: Final = {"avg_logprob": -1.4, "compression_ratio": 0.9, "no_speech_prob": 0.93}


class OpenAiAudio(OpenAi):
    """`POST /v1/audio/transcriptions`, never streamed."""

    name: Dialect = "openai-audio"

    async def body_of(self, http: HttpRequest) -> JsonObject:
        """The fields of the form. Raises BadRequest for a file that the real server refuses."""
        async with http.form() as form:
            body: JsonObject = {name: value for name, value in form.items() if isinstance(value, str)}
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise BadRequest("file: is required")
            data = await file.read()
        name = file.filename or ""
        _check_file(name, data, str(body.get("model", "")))
        return {**body, "file": {"name": name, "size_bytes": len(data), "sha256": sha256(data).hexdigest()}}

    def read(self, body: JsonMapping, _path: str) -> Conversation:
        """The model, and the names that are likely to be said."""
        model, form = wanted(body, "model", str), body.get("response_format", "json")
        if form not in _FORMATS:
            raise BadRequest(f"response_format: the scripted server knows {', '.join(_FORMATS)}")
        if model.startswith(_NEWER) and form != "json":
            raise BadRequest(f"response_format '{form}' is not compatible with model '{model}'. Use 'json' instead.")
        return Conversation(model, (Said("user", str(body.get("prompt", ""))),))

    def whole(self, answer: Answer) -> Json:
        """A `Transcription`, or a `TranscriptionVerbose` with one segment for what was said."""
        segments = list(_segments_of(answer))
        text = "".join(str(one["text"]) for one in segments).strip()
        if answer.request.body.get("response_format", "json") == "json":
            return {"text": text}
        language = str(answer.request.body.get("language", "english"))
        seconds = float(len(segments))
        return {"task": "transcribe", "language": language, "duration": seconds, "text": text, "segments": segments}

    def stream(self, answer: Answer) -> Iterator[bytes]:
        """Transcriptions are not streamed."""
        raise BadRequest(f"stream: the scripted server does not stream transcriptions of {answer.model}")

    def error_event(self, _answer: Answer, _status: int, message: str, /) -> bytes:
        """See `stream`."""
        raise BadRequest(message)


def _segments_of(answer: Answer) -> Iterator[Json]:
    invented = [(answer.invented, _NOBODY_SPOKE)] if answer.invented else []
    spoken = [(answer.text, _SURE)] if answer.text else []
    for n, (text, figures) in enumerate((*spoken, *invented)):
        times = {"seek": 0, "start": float(n), "end": float(n + 1)}
        yield {"id": n, **times, "text": f" {text}", "tokens": [], "temperature": 0.0, **figures}


def _check_file(name: str, data: bytes, model: str) -> None:
    suffix = name.rpartition(".")[2].lower()
    if len(data) > _MOST_BYTES:
        raise BadRequest(f"Maximum content size limit ({_MOST_BYTES}) exceeded ({len(data)} bytes read)", status=413)
    if suffix not in _SUFFIXES or (suffix == "oga" and model.startswith(_NEWER)):
        raise BadRequest(f"Invalid file format. Supported formats: {list(_SUFFIXES)}")
    at, sign = _SIGNS.get(suffix, (0, b""))
    if not data or not data.startswith(sign, at):
        raise BadRequest("The audio file could not be decoded or its format is not supported.")
