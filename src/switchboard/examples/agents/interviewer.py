"""A butler in twenty lines: the delivery comes on standard input as JSON, the reply goes to standard output."""

import json
import os
import sys
import time

QUESTIONS = (
    "Who lives in the house?",
    "Is there anything that nobody of you may eat?",
    "Which appointments come back every week?",
)

payload = json.load(sys.stdin)["envelope"]["payload"]
parts = payload.get("passages") or [{"kind": "own", "text": payload["normalized_text"]}]
said = ("own", "between", "transcript")  # not what is quoted
heard = "\n\n".join(part["text"] for part in parts if part["kind"] in said)
time.sleep(float(os.environ.get("THINK_SECONDS", "0.6")))  # a model would take longer
question = QUESTIONS[sum(map(ord, heard)) % len(QUESTIONS)]
print(f"Thank you, I have noted: {heard!r}. {question}")
