"""Defuses the control words of local models' templates in text written by others. Pure.

`bodies.py` calls it only for local servers. Most of them render all messages into one text with the model's template,
and interpret turn markers anywhere in it: a page with `<|im_end|>` could end the message that quotes it and continue as
the system. Providers keep the two apart. In: the text of a message; out: the same, with a space in each such word, so
that it is read as plain letters.
"""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = r"[A-Za-z_][\w.:/-]{0,60}"
_BARRED: Final = rf"[|\uff5c]/?[\w.:/\u2581-]{{1,60}}[|\uff5c]?>|/?{_NAME}[|\uff5c]>"
"""`<|im_start|>` of Qwen and many others, `<|turn>` and `<turn|>` of Gemma, and DeepSeek's with wide bars."""
_NAMED: Final = (
    r"/?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|start_of_image|start_of_role|end_of_role|end_of_text|think"
    r"|tools?|tool_calls?|tool_response|function_calls?|minimax:tool_call|\w{1,20}_token)>|</?SYS>>"
)
_BRACKETED: Final = r"/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|ARGS|THINK|IMG)\]"
_WORD: Final = re.compile(rf"<(?={_BARRED}|{_NAMED})|\[(?={_BRACKETED})")


def without_control_words(text: str) -> str:
    """The text with a space after the opening bracket of each of these words."""
    return _WORD.sub(lambda match: f"{match.group()} ", text)
