"""Images of a message in the form that a provider accepts. Pure; `bodies.py` calls it."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from msgspec import Struct

from switchboard.core.turns.images import EXTENSIONS, MOST_IMAGES
from switchboard.domain.llm import Image


class Picture(Struct, frozen=True):
    """An image that can be sent; `data` is base64."""

    media_type: str
    data: str

    @property
    def url(self) -> str:
        """A data URL that contains the image."""
        return f"data:{self.media_type};base64,{self.data}"


def pictures(images: Sequence[Image], *, vision: bool, most_bytes: int) -> tuple[list[Picture], str]:
    """The images that can be shown, and a sentence about the others for the model."""
    shown = [one for one in images if one.media_type in EXTENSIONS and len(one.data) <= most_bytes][:MOST_IMAGES]
    shown = shown if vision else []
    left = len(images) - len(shown)
    note = f"({left} of {len(images)} attached images cannot be shown to you.)" if left else ""
    return [Picture(one.media_type, base64.b64encode(one.data).decode()) for one in shown], note
