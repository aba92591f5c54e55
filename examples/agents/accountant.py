"""Finds amounts of money in a message. Exit code 0 with text is a reply, 0 without text means that none is needed."""

import json
import os
import re
import sys
import time

delivery = json.load(sys.stdin)
text = delivery["envelope"]["payload"]["normalized_text"]
time.sleep(float(os.environ.get("THINK_SECONDS", "0.6")))
amounts = re.findall(r"\d+[.,]\d\d(?= ?(?:EUR|€))", text)
if amounts:
    total = sum(float(amount.replace(",", ".")) for amount in amounts)
    print(f"Entered in the books: {total:.2f} EUR.")
else:
    print("I found no amount in this; I have filed it with the papers.")
