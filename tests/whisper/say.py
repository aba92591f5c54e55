"""Speaks with espeak-ng, and packs it as a voice message of Telegram: Opus in Ogg. Run by Whisper's own environment.

python say.py VOICE TEXT FILE   an empty text is five seconds of silence
"""

from __future__ import annotations

import subprocess
import sys
import wave
from importlib import import_module
from io import BytesIO
from typing import Any, Final

_ESPEAK: Final = "/usr/bin/espeak-ng"


def main(voice: str, text: str, file: str) -> None:
    """Write the file."""
    av: Any = import_module("av")
    with (
        av.open(BytesIO(_spoken(voice, text) if text else _silent())) as sound,
        av.open(file, "w", format="ogg") as out,
    ):
        opus = out.add_stream("libopus", rate=48_000, layout="mono")
        opus.bit_rate = 24_000
        fits = av.AudioResampler(format="s16", layout="mono", rate=48_000)
        for frame in sound.decode(audio=0):
            for piece in fits.resample(frame):
                out.mux(opus.encode(piece))
        out.mux(opus.encode(None))


def _spoken(voice: str, text: str) -> bytes:
    return subprocess.run([_ESPEAK, "-v", voice, "-s", "140", "--stdout", text], check=True, capture_output=True).stdout


def _silent() -> bytes:
    made = BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bytes(2 * 16_000 * 5))
    return made.getvalue()


if __name__ == "__main__":
    main(*sys.argv[1:])
