"""The judges of the report about a real model: what counts as raw markup, and that its two halves differ."""

from __future__ import annotations

import pytest

from tests.local_model.tasks import GOALS, RAW, TASKS, messages


@pytest.mark.parametrize(
    "reply",
    [
        '```json\n{"name": "write_file", "arguments": {"path": "a.txt"}}\n```',
        'Of course: {"name": "execute_command", "parameters": {"command": "ls"}}',
        '<tool_call>\n{"name": "x"}\n</tool_call>',
        '[TOOL_CALLS][{"name": "x"}]',
        "<function=write_file>",
        "</think>\nDone.",
        "Done.<|im_end|>",
        '{"action": "pipeline", "steps": []}',
        '{"text": "Done."}',
        "functions.write_file",
    ],
)
def test_what_was_written_for_a_machine_is_raw(reply: str) -> None:
    assert RAW.search(reply)


@pytest.mark.parametrize(
    "reply",
    [
        "The file has 400 lines.",
        "In JSON a call is an object with a name.",
        "```python\nprint({1: 2})\n```\nThis prints a dict.",
        "a < b | c, and {braces} in a sentence.",
        "",
    ],
)
def test_what_a_person_can_read_is_not(reply: str) -> None:
    assert not RAW.search(reply)


def test_no_message_is_in_both_halves_and_each_task_has_enough() -> None:
    found = messages()
    assert set(found) == set(TASKS)
    every = [one for halves in found.values() for half in halves.values() for one in half]
    assert len({one.id for one in every}) == len({one.text for one in every}) == len(every)
    sizes = {task: (len(halves["tune"]), len(halves["measure"])) for task, halves in found.items()}
    usual = {task: (10, 10) if task in {*GOALS, "invite"} else (2, 3) for task in TASKS}
    assert sizes == usual | {"fact": (3, 3), "mailbox": (1, 0)}  # with one sentence of the household each
