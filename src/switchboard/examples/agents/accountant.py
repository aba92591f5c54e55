"""Finds amounts of money in what the sender wrote. What they quote or forward is not booked."""

import json
import os
import re
import sys
import time

payload = json.load(sys.stdin)["envelope"]["payload"]
parts = payload.get("passages") or [{"kind": "own", "text": payload["normalized_text"]}]
text = "\n\n".join(part["text"] for part in parts if part["kind"] in ("own", "between", "transcript"))
time.sleep(float(os.environ.get("THINK_SECONDS", "0.6")))
amounts = re.findall(r"\d+[.,]\d\d(?= ?(?:EUR|€))", text)
if amounts:
    total = sum(float(amount.replace(",", ".")) for amount in amounts)
    print(f"Entered in the books: {total:.2f} EUR.")
else:
    print("I found no amount in this; I have filed it with the papers.")
