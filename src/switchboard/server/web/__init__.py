"""The page for people, below `/ui/`: rendered here, over the same use cases as the API.

`guest.py` is what the server mounts; nothing else of it is imported before the first page is asked for. A request then
goes through `site.py`: where it comes from (`arrivals.py`), who is signed in (`app/web_sessions.py`), and the page or
form of `pages/`. How to add a page is told in docs/web.md.
"""
