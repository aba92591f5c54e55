"""Numbers of WhatsApp (Cloud API): `manifest.py` declares what they can do, `channel.py` is an open account."""
