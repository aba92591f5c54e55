"""Which tools exist, and how they are described to a model.

`agents/turns` builds the tools of a butler once, and asks for those of the audience in every turn. Next: `calls.py`
for a call, `files.py`, `search.py`, `execute_command.py`, `bash.py`, `web_fetch.py`, `web_search.py`, `attach.py`,
`ask.py`, `original.py`, and `memory.py` and those that it imports for the tools.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from switchboard.domain import llm
from switchboard.ports.sandbox import SandboxRules
from switchboard.ports.search import Search
from switchboard.ports.tools import NeedsMachine, Tool, ToolWithName
from switchboard.sandbox.run import Sandbox
from switchboard.tools.ask import AskUser
from switchboard.tools.attach import AttachFile
from switchboard.tools.bash import Bash
from switchboard.tools.entities import MemoryEntityLink, MemoryEntityUnlink
from switchboard.tools.execute_command import ExecuteCommand
from switchboard.tools.files import file_tools
from switchboard.tools.history import HistorySearch
from switchboard.tools.keeping import MemoryConfirm, MemoryForget, MemoryStoreEpisode, MemoryStoreFact
from switchboard.tools.memory import MemorySearch, Remember
from switchboard.tools.original import MessageOriginal
from switchboard.tools.recall import MemoryContext, MemoryEntities, MemoryRecall
from switchboard.tools.search import search_tool
from switchboard.tools.web_fetch import WebFetch
from switchboard.tools.web_search import WebSearch

_DEFAULTS: Final = SandboxRules()


def build_tools(sandbox: SandboxRules = _DEFAULTS, search: Search | None = None) -> tuple[ToolWithName, ...]:
    """All tools, in the order in which models see them, which never changes.

    `sandbox` is for commands. `search`: the provider of `web_search`; None: there is no such tool.
    """
    shut_in = Sandbox(sandbox)
    commands = (ExecuteCommand(shut_in), Bash(shut_in))
    searches = () if search is None else (WebSearch(search),)
    others = (AttachFile(), AskUser(), MessageOriginal(), Remember(), MemorySearch(), HistorySearch())
    recalling = (MemoryRecall(), MemoryContext(), MemoryEntities(), MemoryEntityLink(), MemoryEntityUnlink())
    keeping = (MemoryStoreFact(), MemoryConfirm(), MemoryForget(), MemoryStoreEpisode())
    return (*file_tools(), search_tool(), *commands, WebFetch(), *searches, *others, *recalling, *keeping)


async def usable(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """The tools that work on this machine, in their order."""
    return tuple([tool for tool in tools if not (isinstance(tool, NeedsMachine) and await tool.lacking())])


def tool_definitions(tools: Iterable[Tool]) -> tuple[llm.OfferedTool, ...]:
    """What a model sees of the tools, in their order."""
    return tuple(llm.OfferedTool(tool.spec.name, tool.spec.description, tool.spec.parameters) for tool in tools)
