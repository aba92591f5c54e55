"""The pages of channels and on who may write: their commands, as they stand there, from nothing to an answer."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import smtplib
import ssl
import subprocess
from collections.abc import Mapping, Sequence
from email.message import Message
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.app.ownership import read_ours
from switchboard.app.settings import load_settings
from switchboard.connectors.kernel.accounts import read_account, read_declarations
from switchboard.testing.bot_api import TOKEN, BotApi
from switchboard.testing.discord import TOKEN as DISCORD_TOKEN
from switchboard.testing.discord import DiscordServer
from switchboard.testing.slack import APP_TOKEN, BOT_TOKEN, SlackServer
from tests.documents import HOME, Step, blocks, calls, command_lines, steps
from tests.forked import ForkedCommand
from tests.lab import butler, envelope_json, rule, team_of
from tests.mail_servers import PASSWORD, Dovecot, Postfix, queueing_postfix, running_dovecot
from tests.processes import EXECUTABLE, environment, switchboard
from tests.servers import Opened, open_server
from tests.terminals import terminal
from tests.waiting import eventually

pytestmark = pytest.mark.slow

MAIL, TELEGRAM = HOME / "docs/channels/email.md", HOME / "docs/channels/telegram.md"
SLACK: Final = HOME / "docs/channels/slack.md"
DISCORD: Final = HOME / "docs/channels/discord.md"
WEBHOOK: Final = HOME / "docs/channels/webhook.md"
STRANGERS: Final = HOME / "docs/who-may-write.md"
ACCOUNT, SETTINGS = (next(one.text for one in blocks(MAIL) if one.language == kind) for kind in ("text", "toml"))
VOUCHED: Final = "/^From:/ PREPEND Authentication-Results: mx.example.org; dkim=pass header.d=example.org\n"
"""What the mail server of the mailbox says of every mail."""
HOUSE: Final = ((team_of(butler("butler", "model")),), (rule("System1/butler"),))
TREE: Final = ((team_of("System1/parrot"),), ())


def command(page: Path, beginning: str) -> list[str]:
    """The words of the shortest command of the page that begins so."""
    found = (line for document, line in command_lines() if document == page and line.startswith(beginning))
    line = min(found, key=len)
    [words] = calls(line.partition(" <")[0], "switchboard")
    return words


def typed(page: Path) -> list[Step]:
    """What the page shows of a console, but for walkthroughs."""
    return [step for block in blocks(page) if block.language == "console" and not block.mark for step in steps(block)]


async def said(env: Mapping[str, str], words: Sequence[str], given: str | None = None) -> dict[str, Any]:
    """What a command says with --json, which comes before a `--`."""
    asked = (*words[:2], "--json", *words[2:])
    done = await asyncio.to_thread(partial(switchboard, env, *asked, given=given))
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def as_here(text: str, dovecot: Dovecot, postfix: Postfix) -> str:
    """With the servers of this run."""
    text = text.replace('"imap.example.org", port = 993', f'"localhost", port = {dovecot.tls_port}')
    return text.replace('"smtp.example.org", port = 465', f'"localhost", port = {postfix.tls_port}')


def add_by_wizard(env: dict[str, str], dovecot: Dovecot, postfix: Postfix) -> None:
    """Type what it asks for."""
    asked = {"address": "desk@example.org", "imap.host": "localhost", "imap.port": dovecot.tls_port}
    asked |= {"smtp.host": "localhost", "smtp.port": postfix.tls_port}
    with terminal(env, *command(MAIL, "switchboard channels add email desk")) as screen:
        for question, answer in asked.items():
            screen.expect(f"{question} (")
            screen.type(f"{answer}\n")
        screen.expect("while you type")
        screen.expect("password: ")
        screen.type(f"{PASSWORD}\n")
        screen.expect("desk: added as desk@example.org (email/desk@example.org)")
        screen.expect("[email.trusted_servers]")
        screen.expect("channels")


def write_mail(dovecot: Dovecot, postfix: Postfix) -> None:
    """As the page says, to the desk."""
    with smtplib.SMTP("127.0.0.1", postfix.port) as client:
        client.starttls(context=ssl.create_default_context(cafile=dovecot.certificate))
        client.login("you@example.org", PASSWORD)
        mail = (
            "From: you@example.org",
            "To: desk@example.org",
            "Message-ID: <1@example.org>",
            "Subject: Hi",
            "",
            "Hello",
        )
        client.sendmail("you@example.org", ["desk@example.org"], "\r\n".join(mail))


async def answers(dovecot: Dovecot) -> list[Message]:
    return await asyncio.to_thread(dovecot.mails, "you@example.org")


async def knows_where_it_is(server: Opened) -> bool:
    return await server.lab.count("select count(*) from connector_account where cursor is not null") == 1


async def test_from_nothing_to_the_first_answer_by_mail(database_url: str, tmp_path: Path) -> None:
    channels, settings = tmp_path / "channels.d", tmp_path / "switchboard.toml"
    settings.write_text(SETTINGS)
    more = {"email": load_settings(settings).email, "channels_dir": channels}
    with running_dovecot() as dovecot, queueing_postfix(dovecot, header_checks=VOUCHED) as postfix:
        async with open_server(database_url, tmp_path / "data", worker=True, tree=TREE, more=more) as server:
            env = environment(tmp_path / "data", URL=server.url, CHANNELS_DIR=str(channels))
            env |= {"SSL_CERT_FILE": str(dovecot.certificate), "TERM": "xterm"}
            await asyncio.to_thread(add_by_wizard, env, dovecot, postfix)
            form = "switchboard rules create --team root --name form"
            for beginning in ("switchboard pairing allow", "switchboard rules create", form):
                await said(env, command(MAIL, beginning))
            connecting = [EXECUTABLE, *command(MAIL, "switchboard connect desk")]
            with ForkedCommand(connecting, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as connector:
                try:
                    await eventually(lambda: knows_where_it_is(server), within=60)
                    await asyncio.to_thread(write_mail, dovecot, postfix)
                    await eventually(lambda: answers(dovecot), within=60)
                finally:
                    connector.terminate()
                    # Not by `with`: it says goodbye to the server, which is in this thread.
                    await asyncio.to_thread(connector.wait)
        [answer] = await answers(dovecot)
        by_hand = channels / "by-hand.toml"
        by_hand.write_text(as_here(ACCOUNT, dovecot, postfix))
    assert (answer["From"], answer["In-Reply-To"]) == ("desk@example.org", "<1@example.org>")
    named = {"display_name": "Desk"}
    written, typed = read_account(by_hand, read_ours), read_account(channels / "desk.toml", read_ours)
    assert written.account.settings == typed.account.settings.model_copy(update=named)
    assert (written.endpoint, written.account.secrets) == (typed.endpoint, typed.account.secrets)
    assert (
        read_declarations(by_hand, read_ours).strangers
        == read_declarations(channels / "desk.toml", read_ours).strangers
    )
    assert (channels / "desk.password").stat().st_mode & 0o777 == 0o600


async def test_a_bot_is_added_as_the_page_shows_it_and_its_other_commands_work(
    database_url: str, tmp_path: Path
) -> None:
    async with BotApi() as api, open_server(database_url, tmp_path / "data", tree=HOUSE) as server:
        env = environment(tmp_path / "data", URL=server.url, CHANNELS_DIR=str(tmp_path / "channels.d"))
        env |= {"TERM": "dumb", "SWITCHBOARD_PUBLIC_URL": "https://hooks.example"}
        here = ("--set", f"api_url={api.url}")
        [adding] = typed(TELEGRAM)
        words = [*next(calls(adding.command, "switchboard")), *here]
        await asyncio.to_thread(add_by_asking, env, words, adding.output, {"token": TOKEN})
        await said(env, ["channels", "remove", "telegram", "--yes"])
        webhook = command(TELEGRAM, "switchboard channels add telegram house --webhook")
        assert (await said(env, [*webhook, *here, "--secret-file", "-"], TOKEN))["hook_url"]
        await said(env, [*command(TELEGRAM, "switchboard channels remove house"), "--yes"])
        for beginning in ("add telegram house --secret", "test house", "pause house", "resume house"):
            words = command(TELEGRAM, f"switchboard channels {beginning}")
            await said(env, [*words, *(here if "add" in words else ())], TOKEN)


async def test_an_app_of_slack_is_added_as_the_page_shows_it(database_url: str, tmp_path: Path) -> None:
    async with SlackServer() as slack, open_server(database_url, tmp_path / "data", tree=HOUSE) as server:
        env = environment(tmp_path / "data", URL=server.url, CHANNELS_DIR=str(tmp_path / "channels.d"))
        [adding] = typed(SLACK)
        words = [*next(calls(adding.command, "switchboard")), "--set", f"api_url={slack.api_url}"]
        tokens = {"app_token": APP_TOKEN, "bot_token": BOT_TOKEN}
        await asyncio.to_thread(add_by_asking, env | {"TERM": "dumb"}, words, adding.output, tokens)
        for what in ("test", "pause", "resume"):
            await said(env, command(SLACK, f"switchboard channels {what} slack"))
        await said(env, [*command(SLACK, "switchboard channels remove slack"), "--yes"])


async def test_a_bot_of_discord_is_added_as_its_page_shows_it(database_url: str, tmp_path: Path) -> None:
    async with DiscordServer() as discord, open_server(database_url, tmp_path / "data", tree=HOUSE) as server:
        env = environment(tmp_path / "data", URL=server.url, CHANNELS_DIR=str(tmp_path / "channels.d"))
        here = ("--set", f"api_url={discord.api_url}")
        [adding] = typed(DISCORD)
        words = [*next(calls(adding.command, "switchboard")), *here]
        await asyncio.to_thread(add_by_asking, env | {"TERM": "dumb"}, words, adding.output, {"token": DISCORD_TOKEN})
        await said(env, ["channels", "test", "discord"])


def add_by_asking(env: Mapping[str, str], words: Sequence[str], claimed: str, secrets: Mapping[str, str]) -> None:
    """At a terminal, which shows what the page shows but for the code, the time and the place."""
    varying = {"K7QM2XWP4B": r"\w+", "2026-11-25 09:14:03": r"[\d: -]+", " channels.d/": r" \S*channels.d/"}
    varying |= {"switchboard": r"\S*switchboard"}
    with terminal(env, *words) as screen:
        for name, secret in secrets.items():
            screen.expect("while you type")
            screen.expect(f"{name}: ")  # the blank comes once nothing is shown any more
            screen.type(f"{secret}\n")
        screen.expect("[none]: ")
        screen.type("butler\n")
        screen.expect("See how it is:")
        screen.expect("channels")
        shown = screen.screen.replace("\r", "")
    at = 0
    for line in (one for one in claimed.splitlines() if one and not one.startswith("…")):
        pattern = re.escape(line)
        for word, here in varying.items():
            pattern = pattern.replace(re.escape(word), here)
        found = re.compile(pattern, re.DOTALL).search(shown, at)
        assert found, f"{line!r} is not shown in {shown!r}"
        at = found.end()


async def test_strangers_are_let_in_as_the_page_says(database_url: str, tmp_path: Path) -> None:
    bot, told_id = "telegram/bot:123456", re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
    commands = [next(calls(step.command, "switchboard")) for step in typed(STRANGERS)]
    listing, approving, *in_advance, coding, for_owners = commands
    async with open_server(database_url, tmp_path / "data", tree=HOUSE, policies={bot: "pair"}) as server:
        env = environment(tmp_path / "data", URL=server.url)
        stranger = envelope_json(endpoint="bot:123456", chat_type="private")
        assert (await server.submit(stranger)).json()["triage_decision"] == "held"
        assert (await said(env, command(STRANGERS, "switchboard messages list")))["messages"]
        [contact] = (await said(env, listing))["contacts"]
        approved = await said(env, [told_id.sub(contact["contact_id"], word) for word in approving])
        assert approved["messages"] == 1
        for words in in_advance:
            await said(env, words)
        people = (await said(env, command(STRANGERS, "switchboard pairing list")))["contacts"]
        assert sorted((one["scope"], one["state"], one["identity"]) for one in people) == [
            ("group", "approved", "-1001234567890"),
            ("person", "approved", "alice"),
            ("person", "approved", "noor@example.org"),
        ]
        assert (await said(env, coding))["strangers"] == "pair"
        assert (await said(env, for_owners))["owner_of"] == "System1/butler"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_the_shop_of_the_page_posts_its_order(database_url: str, tmp_path: Path) -> None:
    for block in (one for one in blocks(WEBHOOK) if one.mark == "file"):
        file = tmp_path / block.name.partition("/")[2]
        file.parent.mkdir(exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(block.text)
    [posting] = [block.text for block in blocks(WEBHOOK) if block.language == "sh"]
    more = {"channels_dir": tmp_path / "channels.d"}
    async with open_server(database_url, tmp_path / "data", more=more) as server:
        env, told = environment(tmp_path / "data"), []
        posting = posting.replace("http://127.0.0.1:8470", server.url)
        for line in (posting, posting, posting.replace("a-long-random-token", "another")):
            run = partial(subprocess.run, ["sh", "-c", line], env=env, cwd=tmp_path, capture_output=True, check=True)
            told.append(json.loads((await asyncio.to_thread(run)).stdout))
    assert [one.get("status") or one["error"]["code"] for one in told] == ["accepted", "duplicate", "unauthenticated"]
